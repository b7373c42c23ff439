//! The OpenAPI document of our REST, made from the table of its operations and the types that they take and give.

use crate::routes::{self, Operation, ROUTES, Reply};
use crate::v1;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Which errors every operation may answer with.
const ERRORS: [(u16, &str); 11] = [
    (400, "something in the request does not fit"),
    (401, "the key is missing or not valid"),
    (403, "the key is valid, and this is not for it"),
    (404, "there is no such thing, or it is another tenant's"),
    (408, "the body did not arrive in time"),
    (409, "it is not in a state for that"),
    (413, "the body is too large"),
    (415, "the body is of another type"),
    (422, "a text in the request makes no sense, or an idempotency key was used for another request"),
    (429, "too many requests"),
    (503, "the service is about to go"),
];

/// The document, version 3.1.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let error = v1::Error::json_schema(&mut generator);
    let mut paths: Map<String, Value> = Map::new();
    for operation in ROUTES {
        let entry = paths.entry(operation.path).or_insert_with(|| json!({}));
        entry[operation.method] = described(operation, &mut generator);
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Error".into(), error.to_value());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cofferdam",
            "version": "1",
            "description": "Sandboxes for agents that hold no real credential, with everything on record.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }, { "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn described(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let named = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = named
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    for routes::Parameter { name, needed, value, about } in operation.query {
        let schema = match value {
            routes::Value::Text => json!({ "type": "string" }),
            routes::Value::Word => json!({ "type": "string", "pattern": v1::WORD }),
            routes::Value::One(words) => json!({ "type": "string", "enum": words }),
            routes::Value::Number(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
        };
        parameters.push(json!({
            "name": name, "in": "query", "required": needed, "description": about, "schema": schema,
        }));
    }
    if operation.method == "post" {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "the same key with the same request gives the same answer, for a day",
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9_-]{1,255}$" },
        }));
    }
    let mut about = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.path.split('/').nth(2).unwrap_or_default()],
        "parameters": parameters,
        "responses": responses(operation, generator),
    });
    if operation.admin {
        about["description"] = json!("Only with the administrator's key.");
    }
    if let Some(body) = operation.body {
        let schema = body(generator);
        about["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    if operation.bytes {
        let schema = json!({ "type": "string", "format": "binary" });
        about["requestBody"] =
            json!({ "required": true, "content": { "application/octet-stream": { "schema": schema } } });
    }
    about
}

fn responses(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    // Of a stream the schema is that of one event. Its data is JSON of another.
    let events = |schema: Value| {
        let data =
            json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": schema });
        let properties = json!({
            "event": { "type": "string" }, "id": { "type": "string" }, "data": data,
        });
        json!({
            "schema": { "type": "object", "properties": properties, "required": ["event", "data"] },
            "x-event": schema,
        })
    };
    let content = match operation.reply {
        Reply::Nothing => None,
        Reply::Json(schema) => Some(json!({ "application/json": { "schema": schema(generator) } })),
        Reply::JsonOrEvents(schema, event) => Some(json!({
            "application/json": { "schema": schema(generator) },
            "text/event-stream": events(event(generator).to_value()),
        })),
        Reply::Events(event) => Some(json!({ "text/event-stream": events(event(generator).to_value()) })),
        Reply::Bytes(kind) => Some(json!({ kind: { "schema": { "type": "string", "format": "binary" } } })),
    };
    let mut good = json!({ "description": "done" });
    if let Some(content) = content {
        good["content"] = content;
    }
    let mut all = Map::from_iter([(operation.status.to_string(), good)]);
    for (status, about) in ERRORS {
        let schema = json!({ "$ref": "#/components/schemas/Error" });
        let body = json!({ "description": about, "content": { "application/json": { "schema": schema } } });
        all.insert(status.to_string(), body);
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        let made = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == made,
            "run `UPDATE_OPENAPI=1 cargo test -p cofferdam-api` and commit openapi.json"
        );
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut ids: Vec<_> = ROUTES.iter().map(|operation| operation.id).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
