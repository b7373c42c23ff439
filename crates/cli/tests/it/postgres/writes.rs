//! Writing by declared statements only, and on declared tables only.

use super::staged;

const DECLARED: &str = r#"
[[rule]]
id = "read"
reason = "orders and the catalogue"
effect = "allow"
sql = "read"
host = "db.internal"
database = "shop"
tables = ["public.orders", "pg_catalog.*"]

[[rule]]
id = "price"
reason = "the one way to change an order"
effect = "allow"
sql = "update"
host = "db.internal"
database = "shop"
statement = "UPDATE orders SET amount = $1 WHERE id = $2"

[[rule]]
id = "note"
reason = "notes are kept for people"
effect = "allow"
sql = ["insert", "read"]
host = "db.internal"
database = "shop"
tables = "public.audit"

[[example]]
request = "sql db.internal/shop update orders set amount = 5 where id = 1"
expect = "allow"
rule = "price"

[[example]]
request = "sql db.internal/shop UPDATE orders SET amount = 5"
expect = "deny"
"#;

#[test]
fn only_declared_statements_write() {
    staged(DECLARED, |stage| {
        stage.site.call(&["policy", "test", stage.policy().to_str().unwrap()]).exits(0);
        let refused = |sql: &str, expected: &str| {
            let done = stage.psql(sql).done();
            assert!(done.code() != 0 && done.err().contains(expected), "{sql}: {}", done.err());
        };
        stage.psql("UPDATE orders SET amount = 11 WHERE id = 1").exits(0);
        assert_eq!(stage.database.ask("SELECT amount FROM orders WHERE id = 1"), "11");
        stage.psql("update Orders set amount=10 where id=1 -- back").exits(0);
        assert_eq!(stage.database.ask("SELECT amount FROM orders WHERE id = 1"), "10");
        refused("UPDATE orders SET amount = 0", "update public.orders");
        refused("UPDATE orders SET amount = 0 WHERE id = 1 OR true", "update public.orders");
        refused("UPDATE orders SET amount = refund(1) WHERE id = 1", "no rule allows it");
        refused("DELETE FROM orders WHERE id = 1", "delete public.orders");
        refused("INSERT INTO orders VALUES (9, 'x')", "insert public.orders");
        refused(
            "SELECT * FROM pg_catalog.pg_tables, information_schema.tables",
            "read information_schema.tables",
        );
        let marker = format!("note {}", std::process::id());
        stage.psql(&format!("INSERT INTO audit (note) VALUES ('{marker}') RETURNING id")).exits(0);
        assert_eq!(stage.database.ask(&format!("SELECT count(*) FROM audit WHERE note = '{marker}'")), "1");
    });
}

#[test]
fn rows_are_copied_in_where_a_rule_says_so() {
    staged(DECLARED, |stage| {
        let marker = format!("copied {}", std::process::id());
        let call = stage.psql("COPY audit (note) FROM STDIN").input(format!("{marker} a\n{marker} b\n"));
        call.exits(0);
        assert_eq!(
            stage.database.ask(&format!("SELECT count(*) FROM audit WHERE note LIKE '{marker}%'")),
            "2"
        );
        let done = stage.psql("COPY orders FROM STDIN").input("9\tx\t1\n").done();
        assert!(done.code() != 0 && done.err().contains("insert public.orders"), "{}", done.err());
    });
}

/// A refusal in a pipeline is an error like any other: what was sent with it does not happen.
#[test]
fn a_refusal_takes_its_pipeline_and_its_transaction_with_it() {
    const PROGRAM: &str = r#"
import os, psycopg
note = os.environ["NOTE"]
with psycopg.connect(autocommit=True) as conn:
    try:
        with conn.pipeline():
            conn.execute("INSERT INTO audit (note) VALUES (%s)", [note])
            conn.execute("DELETE FROM audit")
            conn.execute("INSERT INTO audit (note) VALUES (%s)", [note])
    except psycopg.Error as error:
        print(error.sqlstate, "delete public.audit" in str(error))
    try:
        with conn.transaction():
            conn.execute("INSERT INTO audit (note) VALUES (%s)", [note])
            conn.execute("DELETE FROM audit")
    except psycopg.Error as error:
        print(error.sqlstate, error.diag.message_hint.splitlines()[0])
    print(conn.execute("SELECT 1").fetchone()[0])
"#;
    staged(DECLARED, |stage| {
        let note = format!("piped {}", std::process::id());
        let Some(call) = stage.python(PROGRAM) else { return };
        let out = call.with(&["--env", &format!("NOTE={note}")]).exits(0).out();
        assert_eq!(out, "42501 True\n42501 this rule would allow it:\n1\n");
        assert_eq!(stage.database.ask(&format!("SELECT count(*) FROM audit WHERE note = '{note}'")), "0");
    });
}
