//! Credentials that are exchanged for tokens outside: the inside has a placeholder for a token, and never one.

use super::{Stage, staged};

fn add(stage: &Stage<'_>, name: &str, kind: &str, flags: &[&str]) {
    let file = stage.stores.file(kind);
    stage.site.call(&["secret", "add", name, "--as", kind]).with(flags).input(file.to_string()).exits(0);
}

/// Google's own library, with the file that its variable names.
#[test]
fn a_service_account_of_google_stays_outside() {
    staged(|stage| {
        add(stage, "google", "jwt", &["--for", "*.googleapis.com"]);
        let program = "import google.auth, json, os; from google.auth.transport.requests import AuthorizedSession\n\
            credentials, _ = google.auth.default(scopes=['https://www.googleapis.com/auth/cloud-platform'])\n\
            answer = AuthorizedSession(credentials).get('https://storage.googleapis.com/storage/v1/b')\n\
            print(answer.status_code, answer.json(), credentials.token == os.environ['GOOGLE'])\n\
            print(AuthorizedSession(credentials).get('https://storage.googleapis.com/count').json())";
        let out = stage
            .run(&["google"], &["python3", "-c", program])
            .with(&["--env", "GOOGLE_CLOUD_PROJECT=p"])
            .exits(0)
            .out();
        // Others are counted there too.
        assert!(out.starts_with("200 {'for': 'jwt'} True\n") && out.contains("'jwt': 1"), "{out}");
        let file = stage.stores.file("jwt");
        let key: Vec<&str> = file["private_key"].as_str().unwrap().lines().collect();
        stage.nothing_holds(&[key[1], key[5]]);
        let told = stage.site.bodies("control.changed");
        assert!(
            told.iter().any(|body| body["what"] == "token" && body["by"] == "oauth2.googleapis.com"),
            "{told:?}"
        );
    });
}

/// A hundred requests at a time get one token.
#[test]
fn one_refresh_serves_all_who_wait() {
    staged(|stage| {
        add(stage, "oauth", "oauth", &["--for", "api.corp.example"]);
        let program = "import concurrent.futures, os, urllib.request\n\
            def get(path):\n  request = urllib.request.Request('https://api.corp.example' + path, headers={'Authorization': 'Bearer ' + os.environ['OAUTH']})\n  return urllib.request.urlopen(request).read().decode()\n\
            pool = concurrent.futures.ThreadPoolExecutor(100)\n\
            print(set(pool.map(get, ['/many'] * 100)))\nprint(get('/count'))";
        let out = stage.run(&["oauth"], &["python3", "-c", program]).exits(0).out();
        assert!(out.starts_with("{'{\"for\": \"client\"}'}\n") && out.contains("\"client\": 1"), "{out}");
        stage.nothing_holds(&[stage.stores.file("oauth")["refresh_token"].as_str().unwrap()]);
    });
}

/// A token that is soon over is renewed, with what its provider gave last.
#[test]
fn a_token_that_ends_is_renewed() {
    staged(|stage| {
        let add = ["secret", "add", "oauth", "--as", "oauth", "--for", "api.corp.example"];
        stage.site.call(&add).input(stage.stores.file("short").to_string()).exits(0);
        let script =
            "for n in 1 2 3; do curl -sS -H \"Authorization: Bearer $OAUTH\" https://api.corp.example/; done";
        let out = stage.run(&["oauth"], &["sh", "-c", script]).exits(0).out();
        assert_eq!(out, "{\"for\": \"short\"}".repeat(3));
    });
}

#[test]
fn an_installation_of_a_github_app_gets_its_tokens() {
    staged(|stage| {
        add(stage, "app", "github-app", &["--for", "api.github.com"]);
        let script = "for n in $(seq 20); do curl -sS -H \"Authorization: Bearer $APP\" https://api.github.com/repos & done | sort -u; wait\n\
            curl -sS https://api.github.com/count; echo; case $APP in ghs_*) echo looks real;; esac";
        let out = stage.run(&["app"], &["sh", "-c", script]).exits(0).out();
        assert!(
            out.starts_with("{\"for\": \"github-app\"}")
                && out.contains("\"github-app\": 1")
                && out.ends_with("looks real\n"),
            "{out}"
        );
        assert_eq!(out.matches("{\"for\"").count(), 20, "{out}");
    });
}

#[test]
fn what_is_not_exchanged_is_explained_and_leaks_nothing() {
    staged(|stage| {
        let mut file = stage.stores.file("oauth");
        file["refresh_token"] = "1//another-refresh-token-0000".into();
        let add = ["secret", "add", "oauth", "--as", "oauth", "--for", "api.corp.example"];
        stage.site.call(&add).input(file.to_string()).exits(0);
        let script =
            "curl -sS -w '%{http_code}' -H \"Authorization: Bearer $OAUTH\" https://api.corp.example/";
        let out = stage.run(&["oauth"], &["sh", "-c", script]).exits(0).out();
        assert!(
            out.starts_with("cofferdam: there is no token for the credential `oauth`: ")
                && out.contains("invalid_grant"),
            "{out}"
        );
        assert!(out.ends_with("502"), "{out}");
    });
}
