//! A session that may only read, and everything that would write in it.

use super::{READ, staged};

/// Each must fail, and change nothing.
const ATTACKS: &[&str] = &[
    "SELECT 1; DROP TABLE orders",
    "SELECT 1 END; DROP TABLE orders",
    "COMMIT; DROP TABLE orders",
    "DROP TABLE orders",
    "TRUNCATE orders",
    "CREATE TABLE t (a int)",
    "CREATE TEMP TABLE t (a int)",
    "SELECT * INTO t FROM orders",
    "COPY orders FROM PROGRAM 'echo 9'",
    "COPY orders TO PROGRAM 'cat'",
    "COPY orders TO '/tmp/x'",
    "COPY orders FROM STDIN; DROP TABLE orders",
    "DO $$ BEGIN DELETE FROM orders; END $$",
    "WITH x AS (INSERT INTO orders VALUES (9, 'x') RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x",
    "EXPLAIN ANALYZE DELETE FROM orders",
    "PREPARE p AS DELETE FROM orders",
    "SELECT refund(1)",
    "SELECT * FROM refund(1)",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "SET transaction_read_only = off",
    "SET default_transaction_read_only = off",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "BEGIN READ WRITE",
    "START TRANSACTION READ WRITE",
    "SET search_path = pg_temp",
    "SET client_encoding = 'SJIS'",
    "SET standard_conforming_strings = off",
    "SET ROLE owner",
    "SELECT nextval('audit_id_seq')",
    "SELECT pg_notify('a', 'b')",
    "NOTIFY a",
    "LOCK TABLE orders",
    "SELECT * FROM orders FOR UPDATE",
    "SELECT lo_create(0)",
    "SELECT pg_terminate_backend(1)",
    "SELECT query_to_xml('DELETE FROM orders', true, true, '')",
    "ALTER ROLE agent SET default_transaction_read_only = off",
    "CALL refund(1)",
    "SELECT E'\\'; DROP TABLE orders; --'; DROP TABLE orders",
    "SELECT '\\'; DROP TABLE orders; --'",
    "/* /* */ DROP TABLE orders; */ DROP TABLE orders; --",
    "SELECT $a$ $b$ $a$; DROP TABLE orders; SELECT $b$",
    "SELEC 1",
];

#[test]
fn nothing_is_written_whichever_way_it_is_sent() {
    const PROGRAM: &str = r#"
import json, os, psycopg
attacks = json.loads(os.environ["ATTACKS"])
ways = {
    "simple": lambda c, sql: psycopg.ClientCursor(c).execute(sql),
    "extended": lambda c, sql: c.execute(sql, prepare=False, binary=True),
    "prepared": lambda c, sql: c.execute(sql, prepare=True),
    "in a transaction": lambda c, sql: (c.execute("BEGIN"), psycopg.ClientCursor(c).execute(sql)),
}
passed = 0
for way, run in ways.items():
    for sql in attacks:
        with psycopg.connect(autocommit=True) as conn:
            try:
                run(conn, sql)
            except psycopg.Error as error:
                text = str(error)
                if "cofferdam" not in text and "syntax error" not in text:
                    print("not by us:", way, sql, text)
                passed += 1
            else:
                print("went through:", way, sql)
print(passed)
"#;
    staged(READ, |stage| {
        let before = stage.database.ask("SELECT md5(string_agg(o::text, ',' ORDER BY id)) FROM orders o");
        let attacks = serde_json::to_string(ATTACKS).unwrap();
        let Some(call) = stage.python(PROGRAM) else { return };
        let out = call.with(&["--env", &format!("ATTACKS={attacks}")]).exits(0).out();
        // Read as one text in quotes, these two change nothing: they may pass or fail.
        let through: Vec<&str> =
            out.lines().filter(|line| !line.starts_with(|c: char| c.is_ascii_digit())).collect();
        let harmless = |line: &&&str| line.contains("SELECT '\\'; DROP TABLE orders; --'");
        assert!(through.iter().all(|line| harmless(&line)), "{through:#?}");
        let after = stage.database.ask("SELECT md5(string_agg(o::text, ',' ORDER BY id)) FROM orders o");
        assert_eq!(before, after);
        assert_eq!(stage.database.ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), "2");
        stage.nothing_holds_the_password();
    });
}

/// The parser is not all that stands in the way: the server itself keeps the session read-only.
#[test]
fn the_server_holds_what_the_parser_would_miss() {
    let rules = format!(
        "{READ}\n[[rule]]\nid = \"call\"\nreason = \"its effects are the server's to stop\"\neffect = \"deny\"\nsql = \"delete\"\nhost = \"db.internal\"\n"
    );
    staged(&rules, |stage| {
        let out = stage.psql("SHOW default_transaction_read_only").exits(0).out();
        assert_eq!(out, "on\n");
        let out = stage.psql("RESET ALL; DISCARD ALL").done();
        assert_eq!(out.code(), 1, "what cannot run in one text is the server's to say: {}", out.err());
        let out = stage
            .run(&["psql", "-X", "-Atq", "-c", "RESET ALL", "-c", "SHOW default_transaction_read_only"])
            .exits(0)
            .out();
        assert_eq!(out, "on\n");
    });
}

#[test]
fn nothing_gets_around_it_by_the_startup() {
    staged(READ, |stage| {
        let check = |flags: &[&str], expected: &str| {
            let done = stage.psql("SELECT 1").with(flags).done();
            assert!(done.code() != 0 && done.err().contains(expected), "{flags:?}: {}", done.err());
        };
        check(&["--env", "PGOPTIONS=-c default_transaction_read_only=off"], "startup parameter `options`");
        check(&["--env", "PGCLIENTENCODING=SJIS"], "startup parameter `client_encoding`");
        let done = stage.run(&["psql", "-X", "replication=database", "-c", "IDENTIFY_SYSTEM"]).done();
        assert!(done.err().contains("startup parameter `replication`"), "{}", done.err());
    });
}

#[test]
fn a_placeholder_is_not_stored() {
    staged(READ, |stage| {
        let done = stage.run(&["sh", "-c", "psql -X -c \"SELECT '$PGPASSWORD'\""]).done();
        assert!(done.code() != 0 && done.err().contains("credential `db` in the body"), "{}", done.err());
        assert_eq!(
            stage.site.bodies("egress.refused").iter().filter(|body| body["alarm"] == true).count(),
            1
        );
    });
}
