//! A Postgres of a test program's own, which checks passwords by SCRAM and speaks TLS under a made-up authority. Started
//! once, as a plain user, and ended with the test program.

use crate::mode::is_root;
use crate::plain::{plain, run};
use crate::{Mode, eventually};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The name in its certificate, and the database.
pub const DATABASE_HOST: &str = "db.internal";
pub const DATABASE: &str = "shop";

/// Makes the authority and the server's certificate.
const CERTIFICATES: &str = r#"
set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=tests \
    -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=db.internal \
    -keyout server.key -out server.csr 2>/dev/null
printf 'subjectAltName=DNS:db.internal,DNS:plain.internal\n' > extensions
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile extensions \
    -out server.crt 2>/dev/null
chmod 600 server.key
"#;

/// Who may come how. The last three are what the proxy must not go along with.
const ACCESS: &str = "\
local all all trust
host all agent 127.0.0.1/32 scram-sha-256
host all old 127.0.0.1/32 md5
host all open 127.0.0.1/32 trust
host all clear 127.0.0.1/32 password
";

/// Ends the server when its input ends, which it does with the test program.
const KEEPER: &str = r#"
"$1" -D "$2" -k "$3" -h 127.0.0.1 -p "$4" -c fsync=off -c ssl="$5" -c ssl_cert_file="$3/server.crt" \
    -c ssl_key_file="$3/server.key" -c password_encryption=scram-sha-256 > "$3/log-$4" 2>&1 &
server=$!
read end
kill -INT $server
wait $server
"#;

const CONTENT: &str = r#"
CREATE TABLE orders (id int PRIMARY KEY, item text NOT NULL, amount int NOT NULL DEFAULT 1);
INSERT INTO orders SELECT n, 'item ' || n, n * 10 FROM generate_series(1, 5) n;
CREATE TABLE audit (id serial PRIMARY KEY, note text);
CREATE FUNCTION refund(int) RETURNS int LANGUAGE sql AS 'UPDATE orders SET amount = 0 WHERE id = $1 RETURNING id';
"#;

pub struct Database {
    dir: TempDir,
    password: String,
    port: u16,
    /// The same server without TLS.
    plain_port: u16,
    _keepers: Vec<Child>,
}

/// Where the distribution keeps the server's programs.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").exists()).collect();
    found.sort();
    found.pop().expect("Postgres is missing: apt-get install postgresql")
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Database {
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Database> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("cofferdam-db-").tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (uid, gid) = Mode::Range.ids();
        if is_root() {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        let random = || fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().replace('-', "");
        let password = format!("pw-{}", random());
        run(plain("sh").args(["-c", CERTIFICATES]).current_dir(dir.path()));
        let bin = programs();
        let ports = [free_port(), free_port()];
        let mut keepers = Vec::new();
        for (port, ssl) in ports.into_iter().zip(["on", "off"]) {
            let data = dir.path().join(format!("data-{ssl}"));
            run(plain(bin.join("initdb")).arg("-D").arg(&data).args([
                "-U",
                "owner",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
                "--locale=C.UTF-8",
            ]));
            fs::write(data.join("pg_hba.conf"), ACCESS).unwrap();
            let mut keeper = plain("sh");
            keeper.args(["-c", KEEPER, "keeper"]).arg(bin.join("postgres")).arg(&data).arg(dir.path());
            keeper
                .arg(port.to_string())
                .arg(ssl)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            keepers.push(keeper.spawn().unwrap());
        }
        let database = Self { dir, password, port: ports[0], plain_port: ports[1], _keepers: keepers };
        for port in ports {
            database.furnish(port);
        }
        database
    }

    fn furnish(&self, port: u16) {
        eventually("Postgres to answer", || self.try_ask(port, "postgres", "SELECT 1").map(drop));
        self.try_ask(port, "postgres", &format!("CREATE DATABASE {DATABASE}")).unwrap();
        let password = &self.password;
        let roles =
            ["agent", "open", "clear"].map(|role| format!("CREATE ROLE {role} LOGIN PASSWORD '{password}';"));
        let old = format!("SET password_encryption = md5; CREATE ROLE old LOGIN PASSWORD '{password}';");
        let rights = "GRANT ALL ON ALL TABLES IN SCHEMA public TO agent; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO agent; \
            GRANT CREATE ON SCHEMA public TO agent;";
        let text = format!("{}{old}{CONTENT}{rights}", roles.concat());
        self.try_ask(port, DATABASE, &text).unwrap_or_else(|| panic!("{}", self.log(port)));
    }

    fn log(&self, port: u16) -> String {
        fs::read_to_string(self.dir.path().join(format!("log-{port}"))).unwrap_or_default()
    }

    fn try_ask(&self, port: u16, database: &str, sql: &str) -> Option<String> {
        let mut psql = plain("psql");
        psql.args([
            "-X",
            "-v",
            "ON_ERROR_STOP=1",
            "-Atq",
            "-U",
            "owner",
            "-p",
            &port.to_string(),
            "-d",
            database,
            "-c",
            sql,
        ]);
        let done = psql
            .arg("-h")
            .arg(self.dir.path())
            .output()
            .expect("psql is missing: apt-get install postgresql-client");
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap().trim().to_owned())
    }

    /// What the database itself says, asked past everything.
    pub fn ask(&self, sql: &str) -> String {
        self.try_ask(self.port, DATABASE, sql).unwrap_or_else(|| panic!("{sql}: {}", self.log(self.port)))
    }

    pub fn password(&self) -> &str {
        &self.password
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The part of a policy that leads to it: `db.internal`, and `plain.internal` to one that speaks no TLS.
    pub fn upstreams(&self) -> String {
        let (ca, port, plain) = (self.ca(), self.port, self.plain_port);
        let ca = ca.display();
        format!(
            "[[upstream]]\nhost = \"{DATABASE_HOST}\"\nconnect = \"127.0.0.1:{port}\"\nca = \"{ca}\"\n\n\
             [[upstream]]\nhost = \"plain.internal\"\nconnect = \"127.0.0.1:{plain}\"\nca = \"{ca}\"\n\n"
        )
    }
}
