//! The document of this API, and a page for people that is made from it. The page is whole: it loads nothing.

use axum::Json;
use axum::response::Html;
use cofferdam_api::{ROUTES, Reply, document as described};
use serde_json::Value;

pub(super) async fn document() -> Json<Value> {
    Json(described())
}

pub(super) async fn page() -> Html<String> {
    let document = described();
    let mut text = String::from(HEAD);
    for operation in ROUTES {
        let about = &document["paths"][operation.path][operation.method];
        let method = operation.method.to_uppercase();
        text += &format!(
            "<details id=\"{}\"><summary><b class=\"{}\">{method}</b> <code>{}</code> {}{}</summary>",
            operation.id,
            operation.method,
            operation.path,
            marked(operation.summary),
            if operation.admin { " <i>administrator</i>" } else { "" },
        );
        for parameter in about["parameters"].as_array().into_iter().flatten() {
            let say = |name: &str| escaped(parameter[name].as_str().unwrap_or_default());
            let about = marked(parameter["description"].as_str().unwrap_or_default());
            text += &format!("<p><code>{}</code> ({}) {about}</p>", say("name"), say("in"));
        }
        if let Some(schema) = about.pointer("/requestBody/content/application~1json/schema") {
            text += &format!("<h4>takes</h4><pre>{}</pre>", shown(&document, schema));
        }
        let gives = match operation.reply {
            Reply::Nothing => "nothing".to_owned(),
            Reply::Bytes(kind) => kind.to_owned(),
            _ => {
                let content = &about["responses"][operation.status.to_string()]["content"];
                let schema = content.pointer("/application~1json/schema");
                let schema = schema.or_else(|| content.pointer("/text~1event-stream/x-event"));
                schema.map(|schema| shown(&document, schema)).unwrap_or_default()
            }
        };
        text += &format!("<h4>gives {}</h4><pre>{gives}</pre></details>", operation.status);
    }
    Html(text + "</main>")
}

/// A schema, with the one that it names in its place.
fn shown(document: &Value, schema: &Value) -> String {
    let named = schema["$ref"].as_str().and_then(|name| document.pointer(name.trim_start_matches('#')));
    escaped(&serde_json::to_string_pretty(named.unwrap_or(schema)).unwrap_or_default())
}

/// What stands between backticks is code.
fn marked(text: &str) -> String {
    let parts = escaped(text);
    let parts = parts.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = r#"<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="content-security-policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Cofferdam: REST, version 1</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; color: #1b2733; background: #fff }
main { max-width: 60rem; margin: 0 auto; padding: 1rem }
details { border-bottom: 1px solid #dde3ea; padding: .4rem 0 }
summary { cursor: pointer } code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { background: #f4f6f8; padding: .6rem; overflow: auto } i { color: #8a4b00 }
b { display: inline-block; width: 4.5rem } .post { color: #0a6b2d } .get { color: #0b57a4 } .delete { color: #a3170f } .put { color: #7a4a00 }
@media (prefers-color-scheme: dark) { body { background: #11161c; color: #d7dee6 } pre { background: #1b222b } details { border-color: #2b3440 }
.post { color: #5fd38d } .get { color: #7db7ff } .delete { color: #ff8d85 } .put { color: #e6b566 } i { color: #e6b566 } }
</style><main><h1>Cofferdam: REST, version 1</h1>
<p>Send your key as <code>Authorization: Bearer KEY</code>. Every error is <code>{"code", "message", "hint"}</code>. A <code>POST</code> may carry an <code>Idempotency-Key</code>. The document: <a href="/v1/openapi.json">openapi.json</a>.</p>
"#;
