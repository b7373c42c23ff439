//! Azure's own client with the placeholder of an account key, at azurite, which checks every signature.

use super::staged;

const CLIENT: &str = r#"
import os
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient

service = BlobServiceClient("https://devstore.blob.core.windows.net", credential={"account_name": "devstore", "account_key": os.environ["AZURE_STORAGE_KEY"]}, retry_total=0)
try:
    container = service.create_container("box" + os.environ["NAME"])
    body = os.urandom(300000)
    container.upload_blob("a b+ü/x.bin", body, metadata={"of": "the inside"})
    container.upload_blob("parts", body * 8, max_concurrency=2)
    blob = container.get_blob_client("a b+ü/x.bin")
    print(blob.download_blob().readall() == body, blob.download_blob(offset=5, length=7).readall() == body[5:12])
    print([entry.name for entry in container.list_blobs()])
    container.delete_container()
except HttpResponseError as error:
    print(error.status_code, error.error_code)
"#;

#[test]
fn the_azure_client_works_with_a_placeholder() {
    staged(|stage| {
        let connection = format!(
            "DefaultEndpointsProtocol=https;AccountName=devstore;AccountKey={};EndpointSuffix=core.windows.net",
            stage.stores.key("azure_key")
        );
        let add = ["secret", "add", "azure", "--preset", "azure-storage"];
        stage.site.call(&add).input(connection).exits(0);
        let run = |name: &str| {
            let name = format!("NAME={name}");
            stage.run(&["azure"], &["python3", "-c", CLIENT]).with(&["--env", &name]).exits(0).out()
        };
        assert_eq!(run("right"), "True True\n['a b+ü/x.bin', 'parts']\n");
        stage.nothing_holds(&[stage.stores.key("azure_key").trim_end_matches('=')]);
        stage.site.call(&["secret", "rm", "azure"]).exits(0);
        let other =
            "QW5vdGhlcktleUFub3RoZXJLZXlBbm90aGVyS2V5QW5vdGhlcktleUFub3RoZXJLZXlBbm90aGVyS2V5QW5vdGhlcg==";
        stage.site.call(&add).input(other).exits(0);
        assert!(run("wrong").starts_with("403 "), "{}", run("wrong"));
    });
}
