//! Clients as they come: curl in all its ways, wget, Node, Java. Each has a placeholder and no flags.

use super::{DIRECT, staged, staged_once};

const AUTH: &str = r#"-H "Authorization: Bearer $KEY""#;

#[test]
fn curl_speaks_every_version_with_and_without_a_proxy() {
    staged(|stage| {
        let get = |before: &str, flags: &str| {
            format!(
                "{before} curl -sS --fail {flags} {AUTH} -w ' %{{http_version}}\\n' https://api.corp.example/ok\n"
            )
        };
        let script = ["", DIRECT]
            .iter()
            .flat_map(|before| ["--http1.1", "--http2", "--http1.0"].map(|flags| get(before, flags)))
            .collect::<String>();
        let out = stage.sh(&format!("set -e\n{script}")).exits(0).out();
        let versions: Vec<&str> = out.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(versions, ["1.1", "2", "1", "1.1", "2", "1"], "{out}");
        assert!(out.lines().all(|line| line.contains("\"credential\": true")), "{out}");
        let seen = stage.used("api.corp.example");
        let spoken: Vec<&str> = seen.iter().map(|seen| seen["http"].as_str().unwrap()).collect();
        assert_eq!(spoken, ["1.1", "2", "1.1", "1.1", "2", "1.1"]);
        let via: Vec<_> =
            stage.site.bodies("egress.decided").iter().map(|body| body["via"].clone()).collect();
        assert_eq!(via, ["proxy", "proxy", "proxy", "transparent", "transparent", "transparent"]);
    });
}

#[test]
fn curl_sends_a_user_and_a_password_and_speaks_http_in_the_clear() {
    staged(|stage| {
        let script = format!(
            "set -e\n\
             curl -sS --fail -u \"$KEY:\" https://api.corp.example/user\n\
             curl -sS --fail -u \"agent:$KEY\" https://api.corp.example/password\n\
             curl -sS --fail -H \"x-api-key: $KEY\" https://api.corp.example/header\n\
             curl -sS --fail {AUTH} -T /etc/hostname https://api.corp.example/put\n\
             head -c 300000 /dev/zero | curl -sS --fail {AUTH} -H Expect:100-continue --data-binary @- https://api.corp.example/post\n\
             curl -sS --fail {AUTH} http://plain.corp.example/ok\n\
             {DIRECT} curl -sS --fail {AUTH} http://plain.corp.example/ok"
        );
        let out = stage.sh(&script).exits(0).out();
        assert!(out.contains("\"bytes\": 300000"), "{out}");
        let paths: Vec<_> = stage.used("api.corp.example").iter().map(|seen| seen["path"].clone()).collect();
        assert_eq!(paths, ["/user", "/password", "/header", "/put", "/post"]);
        assert_eq!(stage.used("plain.corp.example").len(), 2);
    });
}

#[test]
fn wget_and_node_need_no_flags() {
    staged(|stage| {
        let fetch = r#"fetch("https://api.corp.example/node", {headers: {Authorization: "Bearer " + process.env.KEY}})
            .then(async answer => console.log(answer.status, await answer.text()))"#;
        stage.site.write("client.mjs", fetch);
        let script = format!(
            "set -e\n\
             wget -qO- --header \"Authorization: Bearer $KEY\" https://api.corp.example/wget\n\
             {DIRECT} wget -qO- --header \"Authorization: Bearer $KEY\" https://api.corp.example/wget\n\
             node client.mjs"
        );
        let out = stage.sh(&script).exits(0).out();
        assert!(out.contains("200 {\"ok\": true, \"credential\": true"), "{out}");
        assert_eq!(stage.used("api.corp.example").len(), 3);
    });
}

/// It reads neither the proxy's variables nor a bundle: its stream is taken, and its own store knows our authority.
#[test]
fn java_needs_no_flags() {
    staged(|stage| {
        let client = r#"
            import java.net.URI;
            import java.net.http.*;
            class Client {
                public static void main(String[] args) throws Exception {
                    var request = HttpRequest.newBuilder(URI.create("https://api.corp.example/java"))
                        .header("Authorization", "Bearer " + System.getenv("KEY")).build();
                    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
                    System.out.println(answer.statusCode() + " " + answer.body());
                }
            }"#;
        stage.site.write("Client.java", client);
        let script = "set -e\njava Client.java\n\
             keytool -list -cacerts -storepass changeit -alias cofferdam-0 | grep -c trustedCertEntry";
        let out = stage.sh(script).exits(0).out();
        assert!(out.contains("200 {\"ok\": true, \"credential\": true") && out.ends_with("\n1\n"), "{out}");
        assert_eq!(stage.used("api.corp.example").len(), 1);
    });
}

/// A program of Go's own HTTP and TLS, as the distribution ships it: by the proxy's variables, and without them by the
/// stream that is taken.
#[test]
fn go_needs_no_flags() {
    staged(|stage| {
        let script = "set -e\ngron https://open.corp.example/go\n\
             unset HTTPS_PROXY https_proxy HTTP_PROXY http_proxy ALL_PROXY all_proxy\n\
             gron https://open.corp.example/go";
        let out = stage.sh(script).exits(0).out();
        assert_eq!(out.matches("json.ok = true;").count(), 2, "{out}");
    });
}

/// The servers do check: nobody gets in without the placeholder, nor with a text of another making, nor outside with
/// the placeholder itself. A real key that is not the session's does not even leave.
#[test]
fn nobody_else_is_admitted() {
    staged_once(|stage| {
        let other = super::fresh_value();
        let script = format!(
            "echo \"$KEY\" >&2\n\
             curl -s -o /dev/null -w '%{{http_code}} ' https://api.corp.example/ok\n\
             curl -s -o /dev/null -w '%{{http_code}} ' -H 'Authorization: Bearer no-key-at-all' https://api.corp.example/ok\n\
             curl -s -o /dev/null -w '%{{http_code}} ' -H 'Authorization: Bearer {other}' https://api.corp.example/ok\n\
             curl -s -o /dev/null -w '%{{http_code}}' {AUTH} https://api.corp.example/ok"
        );
        let done = stage.sh(&script).exits(0);
        assert_eq!(done.out(), "401 401 403 200");
        // What was refused is told below it.
        let placeholder = done.err().lines().next().unwrap().to_owned();
        assert!(
            placeholder.starts_with("sk_live_") && placeholder.len() == stage.real.len(),
            "{placeholder}"
        );
        assert!(placeholder != stage.real && stage.server.seen_with(&placeholder).is_empty());
    });
}

/// A redirection is the client's to follow, and where it leads is judged anew: curl drops the credential on the way
/// to another host, and one that is made to keep it is refused.
#[test]
fn a_redirection_does_not_carry_the_credential_away() {
    staged_once(|stage| {
        let to = "https://api.corp.example/redirect";
        let script = format!(
            "curl -sS -L -o /dev/null -w '%{{http_code}} %{{url_effective}}\\n' {AUTH} {to}\n\
             curl -sS -L --location-trusted -w '\\n%{{http_code}}\\n' {AUTH} {to}"
        );
        let out = stage.sh(&script).exits(0).out();
        assert!(out.starts_with("200 https://open.corp.example/landed\n"), "{out}");
        assert!(out.contains("credential `key`") && out.ends_with("\n403\n"), "{out}");
        let landed = stage.server.seen(|seen| seen["path"] == "/landed");
        assert!(landed.iter().all(|seen| !seen.to_string().contains("sk_live_")), "{landed:?}");
        assert_eq!(stage.refused("credential-misused").len(), 1);
    });
}
