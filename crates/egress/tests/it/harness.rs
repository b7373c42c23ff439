//! A proxy that runs, what it has recorded, and the ways to speak to it.

use cofferdam_egress::names::Names;
use cofferdam_egress::swap::Coffer;
use cofferdam_egress::{Alerting, Ca, Config, Handle, KnownHosts, Limits, Listeners, Rules, serve};
use cofferdam_model::{BlobRef, Body, EgressDecided, EgressEnded, EgressRefused, NotRecorded, Record, Tap};
use cofferdam_policy::Policy;
use cofferdam_vault::{Bound, Credential, Place, Plain};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const REAL: &str = "sk_real_4242424242424242abcdefgh";
pub(crate) const PLACEHOLDER: &str = "sk_fake_0000000000000000abcdefgh";

pub(crate) const SESSION: &str = "20260101-test";

/// In the place of a real one: that is tested where it is made.
pub(crate) fn sign(key: &[u8], text: &[u8]) -> [u8; 32] {
    std::array::from_fn(|at| (key.len() + text.len() + at) as u8)
}

/// Keeps all that it is told, and can be made to fail.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) events: Mutex<Vec<(Option<u64>, Body)>>,
    pub(crate) is_broken: AtomicBool,
}

impl Record for Kept {
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
        if self.is_broken.load(Relaxed) {
            return Err(NotRecorded { kind: body.kind(), reason: "the disk is full".into() });
        }
        let mut events = self.events.lock().unwrap();
        events.push((parent, body.clone()));
        Ok(events.len() as u64 - 1)
    }

    fn keep(&self, _: &[u8]) -> Result<BlobRef, NotRecorded> {
        Err(NotRecorded::bytes("there is no store here"))
    }
}

pub(crate) struct Proxy {
    pub(crate) handle: Handle,
    pub(crate) kept: Arc<Kept>,
    pub(crate) address: SocketAddr,
    pub(crate) dir: tempfile::TempDir,
}

/// The certificate authority under which the test's servers stand.
pub(crate) const UPSTREAM_CA: &str = "upstream-ca.pem";

/// A policy that leads `host` to a server of ours.
pub(crate) fn upstream(host: &str, to: SocketAddr) -> String {
    format!("[[upstream]]\nhost = \"{host}\"\nconnect = \"{to}\"\nca = \"{UPSTREAM_CA}\"\n\n")
}

pub(crate) fn allow(id: &str, host: &str, more: &str) -> String {
    format!("[[rule]]\nid = \"{id}\"\nreason = \"a test\"\neffect = \"allow\"\nhost = \"{host}\"\n{more}\n\n")
}

pub(crate) fn rules(policy: &str, upstream_ca: &str) -> Rules {
    let policy = Policy::parse(policy).unwrap_or_else(|errors| panic!("{errors}\n{policy}"));
    let pem = upstream_ca.as_bytes().to_vec();
    Rules::new(Arc::new(policy), &move |path| {
        assert_eq!(path, UPSTREAM_CA);
        Ok(pem.clone())
    })
    .unwrap()
}

/// A credential for these hosts, whose placeholder and value are the constants above.
pub(crate) fn credential(hosts: &[&str]) -> Bound {
    Bound {
        credential: Credential {
            name: "key".into(),
            env: "KEY".into(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            places: vec![Place::Bearer, Place::Basic, Place::Query("key".into())],
            ..Credential::default()
        },
        placeholder: PLACEHOLDER.into(),
        plain: Plain::new(REAL.into()),
        generation: 1,
        parts: vec![],
    }
}

pub(crate) struct Setup {
    pub(crate) policy: String,
    pub(crate) upstream_ca: String,
    pub(crate) credentials: Vec<Bound>,
    pub(crate) limits: Limits,
    pub(crate) transparent: Vec<TcpListener>,
    pub(crate) names: Arc<Names>,
    pub(crate) dns: Option<UdpSocket>,
    pub(crate) tap: Option<Arc<dyn Tap>>,
}

impl Setup {
    pub(crate) fn new(policy: &str, upstream_ca: &str) -> Self {
        Self {
            policy: policy.into(),
            upstream_ca: upstream_ca.into(),
            credentials: vec![],
            limits: Limits::default(),
            transparent: vec![],
            names: Arc::new(Names::new(100)),
            dns: None,
            tap: None,
        }
    }

    pub(crate) fn credentials(mut self, credentials: Vec<Bound>) -> Self {
        self.credentials = credentials;
        self
    }

    pub(crate) fn tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    pub(crate) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    pub(crate) fn start(self) -> Proxy {
        let kept = Arc::new(Kept::default());
        let ca = Arc::new(Ca::new("test session").unwrap());
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
        let config = Config {
            rules: rules(&self.policy, &self.upstream_ca),
            coffer: Coffer::new(self.credentials).unwrap(),
            names: self.names,
            ca,
            known_hosts: KnownHosts::default(),
            record: kept.clone(),
            limits: self.limits,
            alerting: Alerting { session: SESSION.into(), sign },
            tap: self.tap,
            own: None,
            on_policy: None,
            on_cap: None,
        };
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = proxy.local_addr().unwrap();
        let listeners = Listeners {
            proxy,
            transparent: self.transparent,
            dns_udp: self.dns,
            dns_tcp: None,
            stray_udp: vec![],
        };
        Proxy { handle: serve(listeners, config, None).unwrap(), kept, address, dir }
    }
}

/// What curl said.
#[derive(Debug)]
pub(crate) struct Curled {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) error: String,
}

impl Proxy {
    pub(crate) fn ca(&self) -> String {
        self.dir.path().join("ca.pem").to_string_lossy().into_owned()
    }

    /// Curl through the proxy, trusting the session's authority and nothing else.
    pub(crate) fn curl(&self, args: &[&str]) -> Curled {
        curl(&[&["--proxy", &format!("http://{}", self.address), "--cacert", &self.ca()], args].concat())
    }

    pub(crate) fn events(&self) -> Vec<Body> {
        self.kept.events.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    pub(crate) fn decided(&self) -> Vec<EgressDecided> {
        self.events()
            .into_iter()
            .filter_map(|b| if let Body::EgressDecided(d) = b { Some(*d) } else { None })
            .collect()
    }

    pub(crate) fn refused(&self) -> Vec<EgressRefused> {
        self.events()
            .into_iter()
            .filter_map(|b| if let Body::EgressRefused(r) = b { Some(*r) } else { None })
            .collect()
    }

    pub(crate) fn ended(&self) -> Vec<EgressEnded> {
        self.events()
            .into_iter()
            .filter_map(|b| if let Body::EgressEnded(e) = b { Some(e) } else { None })
            .collect()
    }

    /// The next exchange's end, which may come a moment after its answer.
    pub(crate) fn wait_ended(&self, count: usize) -> Vec<EgressEnded> {
        cofferdam_testkit::eventually("the exchange to end", || {
            Some(self.ended()).filter(|e| e.len() >= count)
        })
    }

    /// Sends raw bytes to the proxy and reads until it closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        self.raw_until(bytes, "<never>")
    }

    /// Sends raw bytes to the proxy and reads until it closes or has said this.
    pub(crate) fn raw_until(&self, bytes: &[u8], said: &str) -> String {
        raw(self.address, bytes, said)
    }
}

fn raw(to: SocketAddr, bytes: &[u8], said: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = stream.write_all(bytes);
    let mut out = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 {
            break;
        }
        out.extend_from_slice(&buffer[..n]);
        if String::from_utf8_lossy(&out).contains(said) {
            break;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(crate) fn curl(args: &[&str]) -> Curled {
    let out = Command::new("curl")
        .args(["-sS", "-i", "--max-time", "60", "--noproxy", "", "-w", "\n%{http_code}"])
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .expect("curl: install it");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (text, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    // The heads of a CONNECT and of interim answers stand before the one that counts.
    let mut rest = text;
    let mut head = "";
    while rest.starts_with("HTTP/") {
        let (first, after) = rest.split_once("\r\n\r\n").unwrap_or((rest, ""));
        (head, rest) = (first, after);
    }
    Curled {
        status: status.trim().parse().unwrap_or(0),
        head: head.to_owned(),
        body: rest.to_owned(),
        error: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}
