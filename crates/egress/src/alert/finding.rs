//! An alert as a Detection Finding of OCSF, for collectors of security events: class 2004, with the profile of a
//! control that stepped in.

use super::message::{Content, Severity};
use cofferdam_policy::{Alarm, Notice};
use serde_json::{Map, Value, json};

/// The version of the schema whose fields these are.
const SCHEMA: &str = "1.5.0";
const CLASS: u64 = 2004;
/// The methods that the schema lists, of those that are usual.
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];

pub(super) fn finding(content: &Content<'_>) -> Value {
    let (activity, activity_name) = if content.again { (2, "Update") } else { (1, "Create") };
    let severity = match content.severity {
        Severity::Low => "Low",
        Severity::Medium => "Medium",
        Severity::High => "High",
    };
    let (action_id, action, disposition_id, disposition) = outcome(content.notice);
    let [time, first, last] = content.times_ms;
    json!({
        "category_uid": 2,
        "category_name": "Findings",
        "class_uid": CLASS,
        "class_name": "Detection Finding",
        "activity_id": activity,
        "activity_name": activity_name,
        "type_uid": CLASS * 100 + activity,
        "type_name": format!("Detection Finding: {activity_name}"),
        "time": time,
        "start_time": first,
        "end_time": last,
        "count": content.times,
        "severity_id": content.severity as u8,
        "severity": severity,
        "status_id": 1,
        "status": "New",
        "is_alert": true,
        "action_id": action_id,
        "action": action,
        "disposition_id": disposition_id,
        "disposition": disposition,
        "message": content.summary,
        "metadata": {
            "version": SCHEMA,
            "profiles": ["security_control"],
            "uid": content.uid,
            "correlation_uid": content.session,
            "product": {
                "name": "Cofferdam",
                "vendor_name": "Cofferdam",
                "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "finding_info": {
            "uid": content.group,
            "title": format!("{}: {}", content.about, content.cause),
            "desc": content.detail,
            "types": [content.about],
            "first_seen_time": first,
            "last_seen_time": last,
            "analytic": { "type_id": 1, "type": "Rule", "name": content.cause, "uid": content.cause },
        },
        "evidences": [evidence(content)],
        "unmapped": unmapped(content),
    })
}

/// What became of it: action and disposition, each as a number and a word.
fn outcome(notice: Notice) -> (u8, &'static str, u8, &'static str) {
    match notice {
        Notice::Held => (99, "Held", 99, "Waits for a person"),
        Notice::Alarm(Alarm::LargeTransfer) => (3, "Observed", 15, "Detected"),
        _ => (2, "Denied", 2, "Blocked"),
    }
}

fn evidence(content: &Content<'_>) -> Value {
    let mut found = Map::new();
    let mut actor = json!({ "session": { "uid": content.session } });
    if let Some(program) = content.program {
        actor["app_name"] = program.into();
    }
    found.insert("actor".into(), actor);
    let (host, port) = match content.destination.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok()),
        None => (content.destination, None),
    };
    if !host.is_empty() {
        let endpoint = match port {
            Some(port) => json!({ "hostname": host, "port": port }),
            None => json!({ "hostname": host }),
        };
        found.insert("dst_endpoint".into(), endpoint);
    }
    let (method, target) = content.request.split_once(' ').unwrap_or((content.request, ""));
    let mut request = Map::new();
    if METHODS.contains(&method) {
        request.insert("http_method".into(), method.into());
    }
    if target.starts_with('/') {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut url = json!({ "hostname": host, "path": path });
        if let Some(port) = port {
            url["port"] = port.into();
        }
        if !query.is_empty() {
            url["query_string"] = query.into();
        }
        request.insert("url".into(), url);
    }
    if !request.is_empty() {
        found.insert("http_request".into(), request.into());
    }
    found.into()
}

/// What the schema has no place for.
fn unmapped(content: &Content<'_>) -> Value {
    let mut more = json!({ "alert": content.alert });
    if let Some(credential) = content.credential {
        more["credential"] = credential.into();
    }
    if let Some(event) = content.event {
        more["event"] = event.into();
    }
    if let Some(approval) = &content.approval {
        more["approval"] = serde_json::to_value(approval).unwrap_or_default();
    }
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::message::tests::{alert, content, due};

    /// `path type` a line, `[]` for the members of a list; what the published schema requires of this class.
    const REQUIRED: &str = include_str!("ocsf-required.txt");

    fn lacks(finding: &Value) -> Vec<String> {
        let lines = REQUIRED.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut lacking = Vec::new();
        for line in lines {
            let (path, kind) = line.split_once(' ').unwrap();
            let mut at = vec![finding];
            for part in path.split('.') {
                let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
                at = at.into_iter().map(|value| &value[name]).collect();
                if is_list {
                    at = at.into_iter().flat_map(|value| value.as_array().into_iter().flatten()).collect();
                }
            }
            let fits = |value: &&Value| match kind {
                "string" => value.as_str().is_some_and(|text| !text.is_empty()),
                "integer" => value.is_u64(),
                "object" => value.as_object().is_some_and(|object| !object.is_empty()),
                exact => **value == serde_json::from_str::<Value>(exact).unwrap(),
            };
            if at.is_empty() || !at.iter().all(fits) {
                lacking.push(line.to_owned());
            }
        }
        lacking
    }

    #[test]
    fn a_finding_has_what_the_schema_requires() {
        let alarms = Alarm::ALL.map(Notice::Alarm);
        for notice in alarms.into_iter().chain([Notice::Refused, Notice::Held]) {
            let (alert, mut due) = (alert("ocsf"), due(notice));
            for again in [true, false] {
                due.again = again;
                let finding = finding(&content(&alert, &due));
                assert_eq!(lacks(&finding), [] as [&str; 0], "{notice:?}");
                let (class, activity) = (&finding["class_uid"], &finding["activity_id"]);
                let kind = class.as_u64().unwrap() * 100 + activity.as_u64().unwrap();
                assert_eq!(finding["type_uid"], kind);
            }
        }
        // The list does notice.
        let (alert, due) = (alert("ocsf"), due(Notice::Held));
        let mut broken = finding(&content(&alert, &due));
        broken["metadata"]["product"] = json!({});
        broken["finding_info"].as_object_mut().unwrap().remove("uid");
        broken["class_uid"] = 2001.into();
        broken["evidences"][0] = json!({});
        let lacking = lacks(&broken).join("\n");
        for part in ["metadata.product", "finding_info.uid", "class_uid", "evidences"] {
            assert!(lacking.contains(part), "{lacking}");
        }
    }

    #[test]
    fn the_request_is_the_evidence() {
        let (alert, due) = (alert("ocsf"), due(Notice::Alarm(Alarm::Denied)));
        let finding = finding(&content(&alert, &due));
        assert_eq!(
            finding["evidences"],
            json!([{
                "actor": { "session": { "uid": "s1" }, "app_name": "/usr/bin/curl" },
                "dst_endpoint": { "hostname": "evil.example", "port": 8443 },
                "http_request": {
                    "http_method": "POST",
                    "url": { "hostname": "evil.example", "port": 8443, "path": "/up", "query_string": "a=<b>" },
                },
            }])
        );
    }
}
