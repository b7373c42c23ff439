//! Our proxy as a session runs it, without the session: policy, a credential that is swapped and scrubbed, the
//! guard as the policy has it, and a real trace, one `write(2)` for each event. No sandbox is around
//! it, because none is around the peers. It takes `revoke` on stdin and says when it began.

use cofferdam_egress::names::Names;
use cofferdam_egress::swap::Coffer;
use cofferdam_egress::{Alerting, Ca, Config, Limits, Listeners, Rules, serve};
use cofferdam_model::{BlobRef, Body, NotRecorded, Record, SessionId, SessionSpec, SessionStarted};
use cofferdam_policy::Policy;
use cofferdam_seal::SigningKey;
use cofferdam_trace::{FORMAT, Options, Writer};
use cofferdam_vault::{Bound, Credential, Part, Place, Plain, Role};
use std::error::Error;
use std::io::BufRead;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

const REAL: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dcRealReal";
const PLACEHOLDER: &str = "sk_live_51PlaceholderPlaceholder0000000000";

/// As the engine does it.
struct Recorder(Mutex<Writer>);

impl Record for Recorder {
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = writer.append(now_us(), parent, body);
        told.map_err(|error| NotRecorded { kind: body.kind(), reason: error.to_string() })
    }

    fn keep(&self, _: &[u8]) -> Result<BlobRef, NotRecorded> {
        Err(NotRecorded::bytes("nobody looks at bodies here"))
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, trace, policy] = args.as_slice() else {
        return Err("give the directory of the certificates, one for the trace, and a policy".into());
    };
    let dir = Path::new(dir);
    let ca = Arc::new(Ca::new("bench")?);
    let proxy = TcpListener::bind("127.0.0.1:0")?;
    let address = proxy.local_addr()?;
    std::fs::write(Path::new(policy).with_extension("pem"), ca.pem())?;
    let policy = Policy::parse(&std::fs::read_to_string(policy)?)?;
    let config = Config {
        rules: Rules::new(Arc::new(policy), &|path| std::fs::read(dir.join(path)))?,
        coffer: Coffer::new(vec![credential(), signing()])?,
        names: Arc::new(Names::default()),
        ca,
        record: Arc::new(recorder(Path::new(trace))?),
        limits: Limits::default(),
        alerting: Alerting { session: "bench".into(), sign: cofferdam_seal::authenticate },
        tap: None,
        own: None,
        on_policy: None,
        on_cap: None,
    };
    let listeners = Listeners { proxy, transparent: vec![], dns_udp: None, dns_tcp: None, stray_udp: vec![] };
    let handle = serve(listeners, config, None)?;
    println!("{address}");
    for line in std::io::stdin().lock().lines() {
        if line?.trim() == "revoke" {
            let began = now_us();
            handle.revoke("key", "bench")?;
            println!("{began}");
        }
    }
    handle.shutdown();
    Ok(())
}

fn credential() -> Bound {
    let credential = Credential {
        name: "key".into(),
        env: "KEY".into(),
        hosts: vec!["localhost".into()],
        places: vec![Place::Bearer],
        ..Credential::default()
    };
    let plain = Plain::new(REAL.into());
    Bound { credential, placeholder: PLACEHOLDER.into(), plain, generation: 1, parts: vec![] }
}

/// A key that signs uploads; the load signs them with what stands for it.
fn signing() -> Bound {
    let credential = Credential {
        name: "aws".into(),
        env: "AWS_SECRET_ACCESS_KEY".into(),
        hosts: vec!["store.test".into()],
        places: vec![Place::SigV4],
        ..Credential::default()
    };
    let part = Part {
        role: Role::KeyId,
        env: "AWS_ACCESS_KEY_ID".into(),
        placeholder: "AKIAPLACEHOLDER23456".into(),
        plain: Plain::new("AKIAREALREALREAL2345".into()),
    };
    let plain = Plain::new("rEaLrEaL/K7MDENG+bPxRfiCYrEaLrEaLrEaL000".into());
    let placeholder = "pLaCeHoLdEr/K7MDENG+bPxRfiCYpLaCeHoLdEr0".into();
    Bound { credential, placeholder, plain, generation: 1, parts: vec![part] }
}

fn recorder(dir: &Path) -> Result<Recorder, Box<dyn Error>> {
    let key = Arc::new(SigningKey::from_seed(&[7; 32])?);
    let mut writer = Writer::create(dir, key, Options::default())?;
    let started = SessionStarted {
        session: SessionId::new(now_us() / 1000, 7),
        by: "bench".into(),
        format: FORMAT,
        spec: SessionSpec { command: vec!["true".into()], ..Default::default() },
        workdir: "/work".into(),
        user: "bench".into(),
        host: "bench".into(),
    };
    writer.append(now_us(), None, &Body::SessionStarted(Box::new(started)))?;
    Ok(Recorder(Mutex::new(writer)))
}
