//! A database that checks passwords, spoken to by clients of its own from inside a sandbox that has none. What the rules
//! say of statements holds whichever way a client sends them.

mod attacks;
mod live;
mod writes;

use crate::BINARY;
use cofferdam_testkit::{Call, DATABASE, DATABASE_HOST, Database, Mode, Site, is_root, packages};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Lets the agent read, and nothing else.
const READ: &str = r#"
[[rule]]
id = "shop-read"
reason = "the agent answers questions about orders"
effect = "allow"
sql = "read"
host = ["db.internal", "plain.internal"]
database = "shop"
"#;

struct Stage<'s> {
    site: &'s Site,
    database: &'static Database,
}

fn staged(rules: &str, test: impl Fn(&Stage<'_>)) {
    let site = Site::new(if is_root() { Mode::Root } else { Mode::Single }, BINARY);
    let stage = Stage { site: &site, database: Database::shared() };
    stage.rules(rules);
    stage.add(stage.database.password());
    test(&stage);
}

impl<'s> Stage<'s> {
    fn policy(&self) -> PathBuf {
        self.site.root().join("agent.toml")
    }

    fn rules(&self, rules: &str) {
        fs::write(self.policy(), format!("{}{rules}", self.database.upstreams())).unwrap();
    }

    fn add(&self, password: &str) {
        let port = format!("{DATABASE_HOST}:5432");
        let add = [
            "secret",
            "add",
            "db",
            "--env",
            "PGPASSWORD",
            "--for",
            &port,
            "--for",
            "plain.internal",
            "--as",
            "postgres",
        ];
        self.site.call(&add).input(password).exits(0);
    }

    fn run(&self, command: &[&str]) -> Call<'s> {
        let policy = self.policy();
        let flags =
            ["--policy", policy.to_str().unwrap(), "--secret", "db", "--env", "PGUSER=agent", "--env"];
        let database = format!("PGDATABASE={DATABASE}");
        let host = format!("PGHOST={DATABASE_HOST}");
        self.site.run(command).with(&flags).with(&[&database, "--env", &host])
    }

    fn psql(&self, sql: &str) -> Call<'s> {
        self.run(&["psql", "-X", "-v", "ON_ERROR_STOP=1", "-Atq", "-c", sql])
    }

    /// With psycopg; none where the packages are missing, which was said then.
    fn python(&self, program: &str) -> Option<Call<'s>> {
        let packages = packages()?;
        let packages = packages.display();
        let (mount, path) = (format!("{packages}:{packages}:ro"), format!("PYTHONPATH={packages}"));
        Some(self.run(&["python3", "-c", program]).with(&["--mount", &mount, "--env", &path]))
    }

    /// The statements on record: what was decided, and the acts.
    fn statements(&self) -> Vec<(String, String)> {
        let text = |body: &Value, name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let acts = |body: &Value| {
            let acts: Vec<_> =
                body["acts"].as_array().unwrap().iter().map(|act| act.as_str().unwrap()).collect();
            acts.join(", ")
        };
        self.site.bodies("sql.decided").iter().map(|body| (text(body, "effect"), acts(body))).collect()
    }

    /// Fails if the password is anywhere in what the session left.
    #[track_caller]
    fn nothing_holds_the_password(&self) {
        let found = crate::egress::found_in(self.site.root(), self.database.password());
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn psql_reads_with_a_placeholder() {
    staged(READ, |stage| {
        let out = stage.psql("SELECT count(*), sum(amount) FROM orders").exits(0).out();
        assert_eq!(out, "5|150\n");
        let bodies = stage.site.bodies("egress.decided");
        assert_eq!(
            (bodies[0]["scheme"].as_str(), bodies[0]["credentials"][0].as_str()),
            (Some("postgres"), Some("db"))
        );
        let ended = stage.site.bodies("sql.ended");
        assert_eq!((ended[0]["tag"].as_str(), ended[0]["rows"].as_u64()), (Some("SELECT 1"), Some(1)));
        assert_eq!(stage.statements(), [("allow".to_owned(), "read, read public.orders".to_owned())]);
        let shown = stage.site.call(&["trace", "show", "latest"]).exits(0).out();
        assert!(shown.contains("SELECT count(*), sum(amount) FROM orders (rule `shop-read`"), "{shown}");
        stage.site.call(&["trace", "verify", "latest"]).exits(0);
        stage.nothing_holds_the_password();
    });
}

#[test]
fn what_a_client_shows_of_a_database_works_too() {
    staged(READ, |stage| {
        for command in
            ["\\d", "\\d orders", "\\dt", "\\l", "\\df refund", "\\du", "\\dn", "\\di", "\\conninfo"]
        {
            let done = stage.run(&["psql", "-X", "-c", command]).done();
            assert_eq!(done.code(), 0, "{command}: {}", done.err());
        }
        let verified = stage.psql("SELECT 1").with(&["--env", "PGSSLMODE=verify-full"]).exits(0).out();
        assert_eq!(verified, "1\n");
        stage.psql("SELECT 1").with(&["--env", "PGSSLMODE=disable"]).exits(0);
    });
}

#[test]
fn psycopg_works_unmodified() {
    const PROGRAM: &str = r#"
import psycopg
with psycopg.connect() as conn:
    print(conn.execute("SELECT item FROM orders WHERE id = %s", [3]).fetchone()[0])
    for n in range(1, 8):  # prepared by itself after the fifth time
        conn.execute("SELECT amount FROM orders WHERE id = %s", [n % 5 + 1]).fetchone()
    with conn.pipeline():
        cursors = [conn.execute("SELECT %s::int", [n]) for n in range(3)]
    print([cursor.fetchone()[0] for cursor in cursors])
    with conn.cursor(name="c") as cursor:
        cursor.execute("SELECT id FROM orders ORDER BY id")
        print(cursor.fetchmany(2))
    with conn.cursor().copy("COPY (SELECT id FROM orders ORDER BY id) TO STDOUT") as copy:
        print(b"".join(copy).split())
    with conn.transaction():
        print(conn.execute("SHOW transaction_read_only").fetchone()[0])
"#;
    staged(READ, |stage| {
        let Some(call) = stage.python(PROGRAM) else { return };
        let out = call.exits(0).out();
        let bytes = "[b'1', b'2', b'3', b'4', b'5']";
        assert_eq!(out, format!("item 3\n[0, 1, 2]\n[(1,), (2,)]\n{bytes}\non\n"));
        let again = stage.site.bodies("sql.decided").iter().filter(|body| body["again"] == true).count();
        assert!(again >= 1, "statements that are executed again are on record each time");
        stage.nothing_holds_the_password();
    });
}

#[test]
fn a_wrong_value_and_no_proxy_open_nothing() {
    staged(READ, |stage| {
        let placeholder = stage.run(&["printenv", "PGPASSWORD"]).exits(0).out().trim().to_owned();
        assert_ne!(placeholder, stage.database.password());
        let mut outside = stage.site.command("psql");
        let port = stage.database.port().to_string();
        outside.args(["-X", "-h", "127.0.0.1", "-p", &port, "-U", "agent", "-d", DATABASE, "-c", "SELECT 1"]);
        let done = cofferdam_testkit::finish(outside.env("PGPASSWORD", &placeholder));
        assert!(done.err().contains("password authentication failed"), "{}", done.err());

        let other = stage.run(&["sh", "-c", "PGPASSWORD=not-the-placeholder psql -X -c 'SELECT 1'"]).done();
        let said = "is not the placeholder of the credential `db`";
        assert!(other.code() != 0 && other.err().contains(said), "{}", other.err());

        stage.site.call(&["secret", "rotate", "db"]).input("not-the-password-at-all").exits(0);
        let wrong = stage.psql("SELECT 1").done();
        assert!(wrong.code() != 0 && wrong.err().contains("refuses the session (28P01)"), "{}", wrong.err());
    });
}

#[test]
fn servers_that_would_be_sent_the_password_are_not_spoken_to() {
    staged(READ, |stage| {
        let check = |flags: &[&str], expected: &str| {
            let done = stage.psql("SELECT 1").with(flags).done();
            assert!(done.code() != 0 && done.err().contains(expected), "{flags:?}: {}", done.err());
        };
        check(&["--env", "PGUSER=old"], "it uses md5");
        check(&["--env", "PGUSER=clear"], "it wants the password itself");
        check(&["--env", "PGUSER=open"], "it asks for none");
        check(&["--env", "PGHOST=plain.internal"], "speaks no TLS");
        let policy = fs::read_to_string(stage.policy()).unwrap();
        let declared =
            policy.replace("host = \"plain.internal\"\n", "host = \"plain.internal\"\nplain = true\n");
        fs::write(stage.policy(), declared).unwrap();
        let out = stage.psql("SELECT 1").with(&["--env", "PGHOST=plain.internal"]).exits(0).out();
        assert_eq!(out, "1\n");
    });
}

#[test]
fn what_no_rule_speaks_of_is_refused_with_the_rule_that_would_allow_it() {
    staged(READ, |stage| {
        let other = stage.psql("SELECT 1").with(&["--env", "PGDATABASE=postgres"]).done();
        assert!(
            other.err().contains("no rule allows it") && other.err().contains("database = \"postgres\""),
            "{}",
            other.err()
        );
        let denied = stage.psql("INSERT INTO orders VALUES (9, 'x')").done();
        let err = denied.err();
        assert!(err.contains("no rule allows it (insert public.orders)"), "{err}");
        assert!(err.contains("sql = \"insert\"") && err.contains("tables = [\"public.orders\"]"), "{err}");
        let none = stage.site.run(&[
            "psql",
            "-X",
            "-h",
            DATABASE_HOST,
            "-U",
            "agent",
            "-d",
            DATABASE,
            "-c",
            "SELECT 1",
        ]);
        let none = none.with(&["--policy", stage.policy().to_str().unwrap()]).done();
        assert!(none.err().contains("--for db.internal:5432 --as postgres"), "{}", none.err());
    });
}
