use super::*;
use proptest::prelude::*;

/// The acts of all statements, as text.
fn acts(text: &str) -> String {
    match read(text) {
        Ok(script) => {
            let all = script.statements.iter().flat_map(|statement| &statement.acts);
            all.map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        Err(error) => format!("refused: {error}"),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let found = acts(text);
    match expected.strip_suffix('…') {
        Some(start) => assert!(found.starts_with(start), "{text}\n  {found}"),
        None => assert_eq!(found, expected, "{text}"),
    }
}

#[test]
fn reading() {
    check("SELECT 1", "read");
    check(
        "select count(*) from Orders o join s.\"Items\" i using (id)",
        "read; read public.orders; read s.Items",
    );
    check("VALUES (1)", "read");
    check("SELECT * FROM t UNION TABLE u", "read; read public.u; read public.t");
    check("SELECT a FROM t UNION SELECT b FROM u", "read; read public.t; read public.u");
    check("SHOW server_version", "read");
    check("EXPLAIN ANALYZE SELECT * FROM t", "read; read public.t");
    check("COPY t TO STDOUT", "read public.t");
    check("COPY (SELECT * FROM t) TO STDOUT WITH (FORMAT csv)", "read; read public.t");
    check("DECLARE c CURSOR FOR SELECT * FROM t", "read; read public.t");
    check("SELECT relname FROM pg_class WHERE oid = 'x'::regclass", "read; read pg_catalog.pg_class");
    check("SELECT * FROM generate_series(1, 3) g, unnest(ARRAY[1]) u", "read");
    check("SELECT (SELECT max(x) FROM t) FROM u", "read; read public.t; read public.u");
}

#[test]
fn a_common_table_hides_a_table_only_where_it_can_be_seen() {
    check("WITH x AS (SELECT * FROM t) SELECT * FROM x", "read; read public.t");
    check("WITH x AS (SELECT * FROM x) SELECT * FROM x", "read; read public.x");
    check("WITH RECURSIVE x AS (SELECT 1 UNION SELECT * FROM x) SELECT * FROM x", "read");
    check("WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b", "read");
    check("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM b", "read; read public.a");
    check("SELECT * FROM s WHERE EXISTS (WITH s AS (SELECT 1) SELECT * FROM s)", "read; read public.s");
    check("WITH s AS (SELECT 1) SELECT * FROM public.s", "read; read public.s");
}

#[test]
fn writing_is_found_wherever_it_stands() {
    check("INSERT INTO t VALUES (1)", "insert public.t");
    check("INSERT INTO t SELECT * FROM u RETURNING id", "insert public.t; read public.t; read public.u");
    check("INSERT INTO t SELECT * FROM t", "insert public.t; read public.t");
    check(
        "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2",
        "insert public.t; update public.t",
    );
    check("UPDATE t SET a = 1 FROM u WHERE t.id = u.id", "update public.t; read public.u");
    check("DELETE FROM t USING u WHERE t.id = u.id", "delete public.t; read public.u");
    check(
        "WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x",
        "read; insert public.t; read public.t",
    );
    check(
        "WITH x AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM x",
        "read; delete public.t; read public.t; insert public.u",
    );
    check("SELECT 1; DROP TABLE t", "read; schema drop table");
    check("EXPLAIN ANALYZE DELETE FROM t", "delete public.t");
    check("PREPARE p AS DELETE FROM t WHERE id = $1", "delete public.t");
    check("SELECT * INTO u FROM t", "read; schema select into…");
    check("SELECT * FROM t FOR UPDATE", "read; lock; read public.t");
    check("TRUNCATE t", "schema truncate…");
    check("CREATE TABLE u AS SELECT * FROM t", "schema create table…");
    check("COPY t FROM STDIN", "insert public.t");
    check(
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE",
        "insert public.t; update public.t; delete public.t; read public.t; read public.u",
    );
}

#[test]
fn what_does_more_than_it_says() {
    check("SELECT set_config('transaction_read_only', 'off', false)", "read; call set_config");
    check("SELECT pg_catalog.lower('A'), public.lower('A')", "read; call public.lower");
    check("SELECT * FROM dblink('x', 'y') AS d(a int)", "read; call dblink");
    check(
        "SELECT nextval('s'), pg_sleep(1), my_function(now())",
        "read; call nextval; call pg_sleep; call my_function",
    );
    check("SELECT a FROM t ORDER BY evil(a)", "read; read public.t; call evil");
    check(
        "SELECT count(*) FILTER (WHERE evil()) OVER (PARTITION BY worse()) FROM t",
        "read; call evil; call worse; read public.t",
    );
    check("CALL p(1)", "call p");
    check("COPY t FROM PROGRAM 'id'", "admin files and programs of the server");
    check("COPY t TO '/tmp/x'", "admin files and programs of the server");
    check("GRANT ALL ON t TO u", "admin grant");
    check("CREATE FUNCTION f() RETURNS int AS 'select 1' LANGUAGE sql", "admin create");
    check("ALTER ROLE me SET default_transaction_read_only = off", "admin alter");
    check("EXECUTE p(evil())", "control; call evil");
}

/// Wherever an expression can stand, a function in it is found.
#[test]
fn a_function_hides_nowhere() {
    for text in [
        "SELECT a FROM t LIMIT evil()",
        "SELECT a FROM t OFFSET (SELECT evil())",
        "SELECT a FROM t ORDER BY evil() DESC NULLS LAST",
        "SELECT DISTINCT ON (evil()) a FROM t",
        "SELECT a FROM t GROUP BY GROUPING SETS ((a), (evil()))",
        "SELECT a FROM t GROUP BY a HAVING evil()",
        "SELECT a FROM t JOIN u ON evil()",
        "SELECT a FROM t, LATERAL evil() x",
        "SELECT array_agg(a ORDER BY evil()) FROM t",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY evil()) FROM t",
        "SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY evil())",
        "SELECT CASE WHEN evil() THEN 1 ELSE 2 END",
        "SELECT CAST(evil() AS text), evil()::int",
        "SELECT a[evil()] FROM t",
        "SELECT (evil()).a",
        "SELECT ARRAY[evil()], ROW(evil())",
        "SELECT a IN (SELECT evil()), EXISTS (SELECT evil()), a = ANY (ARRAY[evil()]) FROM t",
        "SELECT a BETWEEN evil() AND 2, a LIKE evil(), a IS DISTINCT FROM evil() FROM t",
        "SELECT coalesce(NULL, evil())",
        "SELECT extract(year FROM evil()), substring(evil() FROM 1), trim(evil()), position('a' IN evil())",
        "SELECT a AT TIME ZONE evil() FROM t",
        "SELECT a FROM t TABLESAMPLE bernoulli (evil())",
        "VALUES (evil())",
        "SELECT a FROM t UNION SELECT evil()",
        "WITH x AS (SELECT evil()) SELECT 1",
        "COPY (SELECT evil()) TO STDOUT",
        "INSERT INTO t VALUES (evil())",
        "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = evil()",
        "INSERT INTO t (a) VALUES (1) RETURNING evil()",
        "UPDATE t SET a = evil()",
        "UPDATE t SET a = 1 WHERE evil()",
        "DELETE FROM t WHERE evil() RETURNING a",
        "DECLARE c CURSOR FOR SELECT evil()",
        "EXPLAIN SELECT evil()",
        "PREPARE p AS SELECT evil()",
        "SELECT pg_catalog.\"lower\"(public.evil())",
    ] {
        let found = acts(text);
        assert!(found.contains("evil") || found.starts_with("refused"), "{text}\n  {found}");
    }
}

#[test]
fn transactions_and_settings() {
    check("BEGIN", "control");
    check("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "control");
    check("START TRANSACTION READ WRITE", "writable");
    check("SET TRANSACTION READ WRITE", "writable");
    check("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "writable");
    check("SET transaction_read_only = off", "writable");
    check("SET default_transaction_read_only TO 'off'", "writable");
    check("SET SESSION default_transaction_read_only = false", "writable");
    check("SET default_transaction_read_only = on", "control");
    check(
        "COMMIT; ROLLBACK; SAVEPOINT a; RELEASE SAVEPOINT a; DISCARD ALL; DEALLOCATE ALL; RESET ALL",
        "control; control…",
    );
    check(
        "SET TimeZone = 'UTC'; SET statement_timeout = 100; SET client_encoding TO 'UTF8'",
        "control; control; control",
    );
    check("SET client_encoding TO 'SJIS'", "admin setting client_encoding");
    check("SET search_path = evil", "admin setting search_path");
    check("SET standard_conforming_strings = off", "admin setting standard_conforming_strings");
    check("SET ROLE admin", "admin settings");
    check("SET SESSION AUTHORIZATION postgres", "admin settings");
    check("", "");
    check(" ; ", "");
}

#[test]
fn what_is_not_understood_to_its_last_word_is_refused() {
    for text in [
        "DO $$ BEGIN DELETE FROM t; END $$",
        "SELECT 1 END; DROP TABLE t",
        "COPY t FROM STDIN; DROP TABLE t \\.",
        "SELECT 'open",
        "SELECT 1 /* open",
        "FROB t",
        "SELECT * FROM t; FROB",
        "CREATE RULE r AS ON SELECT TO t DO INSTEAD (DELETE FROM u; DELETE FROM v)",
        "PREPARE TRANSACTION 'x'",
    ] {
        let found = acts(text);
        assert!(
            found.starts_with("refused") || !found.starts_with("read") || found.contains("schema"),
            "{text}: {found}"
        );
    }
    assert!(acts(&format!("SELECT * FROM {}", "a".repeat(64))).contains("63 bytes"));
    assert_eq!(read(&"x".repeat(MAX_TEXT + 1)).err(), Some(SqlError::Long));
    assert_eq!(read(&format!("SELECT 1{}", "+1".repeat(MAX_DEPTH + 1))).err(), Some(SqlError::Complex));
}

#[test]
fn a_text_that_could_be_read_otherwise_goes_on_as_it_was_understood() {
    assert_eq!(read("SELECT a FROM t").unwrap().canonical, None);
    let script = read("SELECT a -- x\n FROM /* y */ t WHERE b = $$it's$$").unwrap();
    assert_eq!(script.canonical.as_deref(), Some("SELECT a FROM t WHERE b = $$it's$$"));
    for text in ["SELECT E'a\\'b' , 'c'", "SELECT 'ü', ü FROM tä -- x"] {
        let script = read(text).unwrap();
        assert_eq!(read(&script.canonical.unwrap()).unwrap().statements.len(), 1, "{text}");
    }
}

#[test]
fn shapes_are_compared_as_trees() {
    let shape = |text: &str| read(text).unwrap().statements.remove(0).shape;
    let template = shape("UPDATE orders SET status = $1 WHERE id = $2 AND open = true");
    for fits in [
        "update Orders set status='paid' where id=7 and open=TRUE",
        "UPDATE orders SET status = $1 WHERE id = $2 AND open = true",
        "UPDATE orders /* c */ SET status = 'x'\nWHERE id = $9 AND open = true",
    ] {
        assert!(template.admits(&shape(fits)), "{fits}");
    }
    for other in [
        "UPDATE orders SET status = 'x' WHERE id = 7 AND open = false",
        "UPDATE orders SET status = 'x' WHERE id = 7",
        "UPDATE orders SET status = 'x' WHERE id = 7 OR open = true",
        "UPDATE orders SET status = (SELECT 'x') WHERE id = 7 AND open = true",
        "UPDATE users SET status = 'x' WHERE id = 7 AND open = true",
        "UPDATE orders SET status = upper('x') WHERE id = 7 AND open = true",
    ] {
        assert!(!template.admits(&shape(other)), "{other}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}") {
        let _ = read(&text);
        let _ = read(&format!("SELECT {text}"));
        let _ = read(&format!("WITH x AS ({text}) SELECT * FROM x"));
    }

    /// Whatever stands before or behind it, a statement that drops a table is seen or all is refused.
    #[test]
    fn nothing_hides_a_statement(before in "[a-z0-9'\"$;*/() -]{0,24}", after in "[a-z0-9'\"$;*/() -]{0,24}") {
        let text = format!("{before}; DROP TABLE t; {after}");
        if let Ok(script) = read(&text) {
            let sent = script.canonical.as_deref().unwrap_or(&text);
            let seen = script.statements.iter().flat_map(|s| &s.acts).any(|act| act.kind == SqlKind::Schema);
            // In a quote or a comment it is none, and then it is sent as the quote that it was taken for.
            let quoted = sent.contains("'") || sent.contains('"') || sent.contains("$") || !sent.to_lowercase().contains("drop");
            prop_assert!(seen || quoted, "{}", text);
        }
    }
}
