//! boto3 and the JavaScript SDK, unmodified.

use super::{Stage, staged};
use std::process::Command;

const BOTO: &str = include_str!("boto.py");
const NODE: &str = include_str!("node.mjs");
const OTHER_SECRET: &str = "anotherSecretThatTheStoreDoesNotKnow/000";

fn boto(stage: &Stage<'_>, wanted: &str) -> String {
    let program = stage.run(&["aws"], &["python3", "-c", BOTO, wanted]);
    program.exits(0).out()
}

/// Uploads as boto3 makes them by default (unsigned pieces, a checksum behind), downloads, parts of files, names that
/// have to be escaped, URLs made inside, and a file in many parts.
#[test]
fn boto3_works_with_placeholders() {
    staged(|stage| {
        stage.add_right_aws(&["--scope", "s3/eu-west-1"]);
        let expected = "plain.txt ok\na b+c/ü%20~!*.txt ok\ndeep/er/key=1&x?y#z ok\n(1) 'quoted' \"twice\".txt ok\n\
            presigned by a URL\nlisted ['plain.txt']\nlarge 209715200\n";
        assert_eq!(boto(stage, "keys presigned listed large"), expected);
        assert_eq!(stage.stores.object("a b+c/ü%20~!*.txt").unwrap().len(), 999 * 18);
        let used = stage.site.bodies("credential.used");
        assert!(used.len() > 40 && used.iter().all(|body| body["name"] == "aws"), "{}", used.len());
        stage.nothing_holds(&[stage.stores.key("aws_secret"), stage.stores.key("aws_id")]);
    });
}

/// The same client is refused by the store: with a wrong value in the vault, and where nobody signs for it.
#[test]
fn without_the_right_key_the_store_refuses() {
    staged(|stage| {
        stage.add_aws(stage.stores.key("aws_id"), OTHER_SECRET, &[]);
        let out = boto(stage, "keys presigned listed");
        assert_eq!(out.matches("SignatureDoesNotMatch 403").count(), 5, "{out}");
        assert!(out.contains("presigned HTTP 403") && !out.contains("ok"), "{out}");
        let policy = stage.policy();
        let show = ["--policy", policy.to_str().unwrap(), "--secret", "aws"];
        let env = stage.site.run(&["env"]).with(&show).exits(0).out();
        let variable = |name: &str| {
            let start = format!("{name}=");
            env.lines().find_map(|line| line.strip_prefix(&start)).unwrap().to_owned()
        };
        // Outside, with the placeholders, straight to the store.
        let program = "import boto3, sys; from botocore.config import Config; \
            s3 = boto3.client('s3', endpoint_url=sys.argv[1], config=Config(s3={'addressing_style': 'path'}, retries={'max_attempts': 1}))\n\
            try: s3.list_objects_v2(Bucket='bucket'); print('ok')\n\
            except Exception as error: print(error)";
        let direct = |id: &str, secret: &str| {
            let url = stage.stores.plain_s3();
            let mut python = Command::new("python3");
            python.args(["-c", program, &url]).env_clear().env("PYTHONPATH", stage.stores.packages());
            python.env("PATH", cofferdam_testkit::SEARCH_PATH).env("AWS_DEFAULT_REGION", "eu-west-1");
            python.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
            String::from_utf8(python.output().unwrap().stdout).unwrap()
        };
        let placeholders = direct(&variable("AWS_ACCESS_KEY_ID"), &variable("AWS_SECRET_ACCESS_KEY"));
        assert!(placeholders.contains("NotSignedUp"), "{placeholders}");
        assert_eq!(direct(stage.stores.key("aws_id"), stage.stores.key("aws_secret")), "ok\n");
    });
}

#[test]
fn the_javascript_sdk_works_with_placeholders() {
    staged(|stage| {
        stage.add_right_aws(&[]);
        stage.site.write("client.mjs", NODE);
        let packages = stage.stores.packages().display();
        let link =
            format!("ln -s {packages}/node_modules node_modules && NODE_USE_ENV_PROXY=1 node client.mjs");
        let out =
            stage.run(&["aws"], &["sh", "-c", &link]).with(&["--env", "NO_UPDATE_NOTIFIER=1"]).exits(0).out();
        assert_eq!(out, "put ok\nstream ok\nget 300000 ok\nmultipart ok\n");
        stage.nothing_holds(&[stage.stores.key("aws_secret")]);
    });
}

/// What a key may not sign for is refused before anything leaves, with what to do; also credentials of its own.
#[test]
fn a_key_signs_for_its_scopes_alone() {
    staged(|stage| {
        stage.add_right_aws(&["--scope", "s3/eu-west-1"]);
        let program = "import boto3; from botocore.config import Config\n\
            config = Config(retries={'max_attempts': 1}, s3={'addressing_style': 'path'})\n\
            def attempt(call):\n  try: print('ok', call() and '')\n  except Exception as error: print(str(error)[:300])\n\
            attempt(lambda: boto3.client('sts', region_name='eu-west-1', config=config).get_caller_identity())\n\
            attempt(lambda: boto3.client('s3', region_name='eu-west-2', endpoint_url='https://s3.eu-west-1.amazonaws.com', config=config).list_objects_v2(Bucket='bucket'))\n\
            attempt(lambda: boto3.client('s3', config=config).list_objects_v2(Bucket='bucket'))";
        let out = stage.python(program).exits(0).out();
        // boto3 shows what it was told, where it can.
        assert!(
            out.contains("may not sign for `sts` in `eu-west-1`: add a --scope") && out.contains("(403)"),
            "{out}"
        );
        assert!(out.ends_with("ok \n") && out.matches("ok").count() == 1, "{out}");
        let refused = stage.site.bodies("egress.refused");
        let details: Vec<&str> = refused.iter().map(|body| body["detail"].as_str().unwrap()).collect();
        assert!(details[0].contains("may not sign for `sts` in `eu-west-1`: add a --scope"), "{details:?}");
        assert!(details[1].contains("may not sign for `s3` in `eu-west-2`"), "{details:?}");
    });
}

/// Signatures for many regions, by the C library behind boto3, checked with the public key of the real secret.
#[test]
fn signatures_of_version_4a_are_made_anew() {
    staged(|stage| {
        stage.add_right_aws(&[]);
        let program = format!(
            "import boto3; from botocore.config import Config\n\
             s3 = boto3.client('s3', config=Config(retries={{'max_attempts': 1}}))\n\
             arn = 'arn:aws:s3::123456789012:accesspoint/{}'\n\
             print(s3.put_object(Bucket=arn, Key='a b+ü', Body=b'x' * 100000)['ResponseMetadata']['HTTPStatusCode'])\n\
             print(s3.get_object(Bucket=arn, Key='a b+ü')['Body'].read().decode())",
            cofferdam_testkit::ACCESS_POINT
        );
        assert_eq!(stage.python(&program).exits(0).out(), "200\n{\"regions\": \"*\"}\n");
        stage.site.call(&["secret", "rm", "aws"]).exits(0);
        stage.add_aws(stage.stores.key("aws_id"), OTHER_SECRET, &[]);
        let done = stage.python(&program).done();
        assert!(done.err().contains("403"), "{}", done.err());
    });
}
