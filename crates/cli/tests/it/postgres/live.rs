//! What people change while a session with a database is open, and what clients do to it themselves.

use super::{READ, staged};
use cofferdam_testkit::eventually;
use serde_json::Value;

/// Asks until it breaks, and says how.
const CLIENT: &str = r#"
import psycopg, time
conn = psycopg.connect(autocommit=True)
try:
    while True:
        conn.execute("SELECT 1")
        time.sleep(0.05)
except psycopg.OperationalError as error:
    print(error)
try:
    psycopg.connect()
except psycopg.OperationalError as error:
    print(error)
"#;

#[test]
fn a_credential_that_is_taken_back_ends_what_is_open() {
    staged(READ, |stage| {
        let Some(call) = stage.python(CLIENT) else { return };
        let mut running = call.start();
        let id = eventually("the session to be listed", || {
            assert!(running.is_running(), "it ended");
            let live = stage.site.call(&["session", "ls", "--json"]).exits(0).out();
            let live: Vec<Value> = serde_json::from_str(&live).unwrap();
            let id = live.first()?["session"].as_str()?.to_owned();
            // A statement has gone through: the session with the database is open.
            (!stage.site.bodies("sql.ended").is_empty()).then_some(id)
        });
        let told = stage.site.call(&["session", "revoke", &id, "db", "--json"]).exits(0).out();
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["cut"], 1);
        let out = running.finish().exits(0).out();
        assert!(out.contains("cofferdam: it was cut while it was under way (Revoked)"), "{out}");
        assert!(out.contains("the credential `db` was revoked"), "{out}");
        let ended = stage.site.bodies("egress.ended");
        assert!(ended.iter().any(|body| body["ending"] == "revoked"), "{ended:#?}");
    });
}

/// The client's key is not the server's, and cancels all the same.
#[test]
fn a_statement_is_cancelled() {
    const PROGRAM: &str = r#"
import psycopg, threading
conn = psycopg.connect(autocommit=True)
for cancel in (conn.cancel, conn.cancel_safe):
    timer = threading.Timer(0.3, cancel)
    timer.start()
    try:
        conn.execute("SELECT pg_sleep(120)")
    except psycopg.errors.QueryCanceled as error:
        print("cancelled")
    timer.join()
print(conn.execute("SELECT 1").fetchone()[0])
"#;
    let rules = format!(
        "{READ}\n[[rule]]\nid = \"sleep\"\nreason = \"harmless\"\neffect = \"allow\"\nsql = \"call\"\nhost = \"db.internal\"\nfunctions = \"pg_sleep\"\n"
    );
    staged(&rules, |stage| {
        let Some(call) = stage.python(PROGRAM) else { return };
        assert_eq!(call.exits(0).out(), "cancelled\ncancelled\n1\n");
        let cancels = stage.statements().iter().filter(|(_, acts)| acts == "cancel").count();
        assert_eq!(cancels, 2);
    });
}

#[test]
fn a_statement_waits_for_a_person() {
    let rules = format!(
        "{READ}\n[[rule]]\nid = \"ask\"\nreason = \"people decide on deletions\"\neffect = \"review\"\nsql = \"delete\"\nhost = \"db.internal\"\n"
    );
    staged(&rules, |stage| {
        let mut running = stage.psql("DELETE FROM audit WHERE note = 'nobody wrote this'").start();
        let waiting = stage.site.held(&mut running);
        assert_eq!(waiting["request"]["method"], "delete public.audit", "{waiting}");
        stage.site.call(&["approve", "allow", waiting["id"].as_str().unwrap()]).exits(0);
        running.finish().exits(0);
        let answered = stage.site.bodies("approval.answered");
        assert_eq!(answered[0]["answer"], "allowed");
    });
}
