//! The client: the same for every contender, through CONNECT and an intercepted TLS, or directly. One call is
//! one measurement, printed as one line of JSON; it also reads what the proxy's processes have used, so that
//! the two are of the same moments.

use bytes::Bytes;
use clap::{Parser, Subcommand};
use cofferdam_seal::digest;
use cofferdam_vault::{AwsV4Key, Plain};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Looks like the credential and is none; the upstream refuses it.
const PLACEHOLDER: &str = "Bearer sk_live_51PlaceholderPlaceholder0000000000";
/// A request to a model, somewhat shortened.
const PROMPT: &str = r#"{"model":"m","messages":[{"role":"user","content":"#;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
struct Args {
    /// None: straight to the upstream
    #[arg(long)]
    proxy: Option<SocketAddr>,
    #[arg(long)]
    upstream: SocketAddr,
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Sends no placeholder
    #[arg(long)]
    plain: bool,
    /// Signs what it uploads, piece by piece, with what stands for a key
    #[arg(long)]
    signed: bool,
    /// Certificates to trust
    #[arg(long)]
    ca: PathBuf,
    /// The proxy's process, whose time and memory are read
    #[arg(long)]
    pid: Option<u32>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// One after the other on each of some connections
    Requests {
        #[arg(long, default_value_t = 8)]
        connections: usize,
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Bytes of a JSON body; 0 is GET
        #[arg(long, default_value_t = 0)]
        body: usize,
    },
    /// New connections, one request each, one after the other
    Tunnels {
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// From a request to the first event
    Events {
        #[arg(long, default_value_t = 20)]
        count: usize,
    },
    Download {
        #[arg(long, default_value_t = 64 << 20)]
        bytes: u64,
    },
    Upload {
        #[arg(long, default_value_t = 64 << 20)]
        bytes: usize,
    },
    /// Connections that wait
    Idle {
        #[arg(long, default_value_t = 1000)]
        count: usize,
        /// After their first request
        #[arg(long)]
        used: bool,
    },
    /// Event streams that are held until they are cut: says `open`, and at the end when the last byte came
    Hold {
        #[arg(long, default_value_t = 1000)]
        count: usize,
    },
    /// The status of one answer
    Status { path: String },
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let client = Client::new(Args::parse())?;
    let seen = match &client.args.what {
        What::Requests { connections, seconds, body } => {
            client.requests(*connections, *seconds, *body).await?
        }
        What::Tunnels { seconds } => client.tunnels(*seconds).await?,
        What::Events { count } => client.events(*count).await?,
        What::Download { bytes } => client.transfer(&format!("/bytes/{bytes}"), 0).await?,
        What::Upload { bytes } => client.transfer("/small", *bytes).await?,
        What::Idle { count, used } => client.idle(*count, *used).await?,
        What::Hold { count } => client.hold(*count).await?,
        What::Status { path } => {
            let mut sender = client.open().await?;
            let answer = sender.send_request(client.request(path, 0)?).await?;
            json!({ "status": answer.status().as_u16() })
        }
    };
    println!("{seen}");
    Ok(())
}

type Sender = SendRequest<Full<Bytes>>;

struct Client {
    args: Args,
    tls: TlsConnector,
    filler: Bytes,
    /// What goes along with a signed body.
    fields: Vec<(&'static str, String)>,
}

/// In pieces of this size.
const PIECE: usize = 64 << 10;
const KEY_ID: &str = "AKIAPLACEHOLDER23456";
const KEY: &str = "pLaCeHoLdEr/K7MDENG+bPxRfiCYpLaCeHoLdEr0";

/// The body in signed pieces, and the fields that go with it.
fn pieces(host: &str, path: &str, data: &[u8]) -> (Bytes, Vec<(&'static str, String)>) {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = written(seconds);
    let (day, payload) = (&time[..8], "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    let scope = format!("{day}/eu-west-1/s3/aws4_request");
    let key = AwsV4Key::derive(&Plain::new(KEY.into()), day, "eu-west-1", "s3");
    let length = data.len().to_string();
    let canonical = format!(
        "POST\n{path}\n\nhost:{host}\nx-amz-content-sha256:{payload}\nx-amz-date:{time}\nx-amz-decoded-content-length:{length}\n\nhost;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length\n{payload}"
    );
    let mut last =
        key.sign(format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", digest(canonical.as_bytes())).as_bytes());
    let fields = vec![
        ("content-encoding", "aws-chunked".to_owned()),
        ("x-amz-content-sha256", payload.to_owned()),
        ("x-amz-date", time.clone()),
        ("x-amz-decoded-content-length", length),
        (
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length, Signature={last}"
            ),
        ),
    ];
    let mut body = Vec::with_capacity(data.len() + data.len() / PIECE * 100 + 200);
    for piece in data.chunks(PIECE).chain([&[][..]]) {
        let text =
            format!("AWS4-HMAC-SHA256-PAYLOAD\n{time}\n{scope}\n{last}\n{}\n{}", digest(b""), digest(piece));
        last = key.sign(text.as_bytes());
        body.extend_from_slice(format!("{:x};chunk-signature={last}\r\n", piece.len()).as_bytes());
        body.extend_from_slice(piece);
        body.extend_from_slice(b"\r\n");
    }
    (body.into(), fields)
}

/// As `20150830T123600Z`.
fn written(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) =
        (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Microseconds that one pass over a piece takes.
fn pass_us() -> f64 {
    let piece = vec![7; PIECE];
    let began = Instant::now();
    for _ in 0..200 {
        std::hint::black_box(digest(&piece));
    }
    began.elapsed().as_secs_f64() * 1e6 / 200.0
}

impl Client {
    fn new(args: Args) -> Result<Arc<Self>, Failure> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&args.ca)? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Every new connection is a whole handshake, for all alike.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(Self {
            args,
            tls: TlsConnector::from(Arc::new(config)),
            filler: Bytes::new(),
            fields: vec![],
        }))
    }

    async fn stream(&self) -> Result<TlsStream<TcpStream>, Failure> {
        let mut tcp = TcpStream::connect(self.args.proxy.unwrap_or(self.args.upstream)).await?;
        tcp.set_nodelay(true)?;
        if self.args.proxy.is_some() {
            let (host, port) = (&self.args.host, self.args.upstream.port());
            let ask = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
            tcp.write_all(ask.as_bytes()).await?;
            let mut said = Vec::new();
            while !said.ends_with(b"\r\n\r\n") {
                said.push(tcp.read_u8().await?);
            }
            if !said.starts_with(b"HTTP/1.1 200") && !said.starts_with(b"HTTP/1.0 200") {
                return Err(String::from_utf8_lossy(&said).into_owned().into());
            }
        }
        Ok(self.tls.connect(ServerName::try_from(self.args.host.clone())?, tcp).await?)
    }

    async fn open(&self) -> Result<Sender, Failure> {
        let (sender, connection) = http1::handshake(TokioIo::new(self.stream().await?)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(&self, path: &str, body: usize) -> Result<Request<Full<Bytes>>, Failure> {
        let host = match self.args.upstream.port() {
            443 => self.args.host.clone(),
            port => format!("{}:{port}", self.args.host),
        };
        let mut request = Request::builder().uri(path);
        if !self.args.plain {
            request = request.header("authorization", PLACEHOLDER);
        }
        let request = request
            .header("host", host)
            .header("user-agent", "egress-bench/1")
            .header("accept", "application/json")
            .header("x-request-id", "9f86d081884c7d659a2feaa0c55ad015");
        if body == 0 {
            return Ok(request.body(Full::default())?);
        }
        let mut request = request.method("POST").header("content-type", "application/json");
        for (name, value) in &self.fields {
            request = request.header(*name, value);
        }
        Ok(request.body(Full::new(self.filler.clone()))?)
    }

    fn filled(self: &Arc<Self>, bytes: usize) -> Arc<Self> {
        const WORDS: &str = "the quick brown fox jumps over the lazy dog and runs away ";
        let text: String = WORDS.chars().cycle().take(bytes.saturating_sub(PROMPT.len() + 5)).collect();
        let filler = Bytes::from(format!("{PROMPT}\"{text}\"}}]}}"));
        let Args { proxy, upstream, ref host, plain, signed, ref ca, pid, .. } = self.args;
        let what = What::Status { path: String::new() };
        let args = Args { proxy, upstream, host: host.clone(), plain, signed, ca: ca.clone(), pid, what };
        let (filler, fields) = match signed && bytes > 0 {
            true => pieces(&format!("{host}:{}", upstream.port()), "/small", &filler),
            false => (filler, vec![]),
        };
        Arc::new(Self { args, tls: self.tls.clone(), filler, fields })
    }

    /// Sends and reads to the end; the bytes of the answer.
    async fn ask(&self, sender: &mut Sender, path: &str, body: usize) -> Result<u64, Failure> {
        sender.ready().await?;
        let answer = sender.send_request(self.request(path, body)?).await?;
        if answer.status() != 200 {
            return Err(format!("{path}: {}", answer.status()).into());
        }
        drain(answer.into_body()).await
    }

    async fn requests(
        self: &Arc<Self>,
        connections: usize,
        seconds: f64,
        body: usize,
    ) -> Result<Value, Failure> {
        let client = self.filled(body);
        let mut senders = Vec::new();
        for _ in 0..connections {
            let mut sender = client.open().await?;
            for _ in 0..20 {
                client.ask(&mut sender, "/small", body).await?;
            }
            senders.push(sender);
        }
        let before = client.used();
        let began = Instant::now();
        let until = began + Duration::from_secs_f64(seconds);
        let running: Vec<_> = senders
            .into_iter()
            .map(|mut sender| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut took = Vec::with_capacity(1 << 16);
                    let mut now = Instant::now();
                    while now < until {
                        client.ask(&mut sender, "/small", body).await?;
                        let then = std::mem::replace(&mut now, Instant::now());
                        took.push((now - then).as_nanos() as u64);
                    }
                    Ok::<_, Failure>(took)
                })
            })
            .collect();
        let mut took = Vec::new();
        for one in running {
            took.extend(one.await??);
        }
        let elapsed = began.elapsed().as_secs_f64();
        let cpu = client.used().cpu - before.cpu;
        took.sort_unstable();
        let quantile = |share: f64| took[((took.len() - 1) as f64 * share) as usize] as f64 / 1e6;
        Ok(json!({
            "per_second": took.len() as f64 / elapsed,
            "cpu_us": cpu * 1e6 / took.len() as f64,
            "p50_ms": quantile(0.5),
            "p99_ms": quantile(0.99),
        }))
    }

    async fn tunnels(&self, seconds: f64) -> Result<Value, Failure> {
        let one = async || -> Result<(), Failure> {
            let mut sender = self.open().await?;
            self.ask(&mut sender, "/small", 0).await.map(drop)
        };
        for _ in 0..3 {
            one().await?;
        }
        let before = self.used();
        let began = Instant::now();
        let mut count = 0u32;
        while began.elapsed().as_secs_f64() < seconds {
            one().await?;
            count += 1;
        }
        let ms = began.elapsed().as_secs_f64() * 1e3 / f64::from(count);
        Ok(json!({ "cpu_ms": (self.used().cpu - before.cpu) * 1e3 / f64::from(count), "ms": ms }))
    }

    async fn events(&self, count: usize) -> Result<Value, Failure> {
        let mut sender = self.open().await?;
        let mut took = Vec::new();
        for _ in 0..count + 2 {
            sender.ready().await?;
            let began = Instant::now();
            let mut body = sender.send_request(self.request("/sse", 0)?).await?.into_body();
            body.frame().await.ok_or("no event")??;
            took.push(began.elapsed().as_secs_f64() * 1e3);
            drain(body).await?;
        }
        let mut took = took.split_off(2);
        took.sort_by(f64::total_cmp);
        Ok(json!({ "first_ms": took[took.len() / 2] }))
    }

    async fn transfer(self: &Arc<Self>, path: &str, body: usize) -> Result<Value, Failure> {
        let client = self.filled(body);
        let mut sender = client.open().await?;
        client.ask(&mut sender, "/small", 0).await?;
        let before = client.used();
        client.reset_peak();
        let began = Instant::now();
        let received = client.ask(&mut sender, path, body).await?;
        let seconds = began.elapsed().as_secs_f64();
        let after = client.used();
        let bytes = if body == 0 { received as usize } else { client.filler.len() };
        Ok(json!({
            "mb_per_second": bytes as f64 / 1e6 / seconds,
            "cpu_s": after.cpu - before.cpu,
            "pass_us": if self.args.signed { pass_us() } else { 0.0 },
            "grown_kib": after.peak_kib.saturating_sub(before.resident_kib),
        }))
    }

    async fn idle(&self, count: usize, used: bool) -> Result<Value, Failure> {
        for _ in 0..20 {
            let mut sender = self.open().await?;
            self.ask(&mut sender, "/small", 0).await?;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = self.used();
        let (mut streams, mut senders) = (Vec::new(), Vec::new());
        for _ in 0..count {
            if used {
                let mut sender = self.open().await?;
                self.ask(&mut sender, "/small", 0).await?;
                senders.push(sender);
            } else {
                streams.push(self.stream().await?);
            }
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        let grown = self.used().resident_kib.saturating_sub(before.resident_kib);
        drop((streams, senders));
        Ok(json!({ "kib_each": grown as f64 / count as f64 }))
    }

    async fn hold(self: &Arc<Self>, count: usize) -> Result<Value, Failure> {
        let (last, frames) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut held = Vec::new();
        for _ in 0..count {
            let mut sender = self.open().await?;
            let mut body = sender.send_request(self.request("/endless", 0)?).await?.into_body();
            body.frame().await.ok_or("no event")??;
            let (last, frames) = (last.clone(), frames.clone());
            held.push(tokio::spawn(async move {
                let _sender = sender;
                while let Some(Ok(_)) = body.frame().await {
                    last.fetch_max(now_us(), Relaxed);
                    frames.fetch_add(1, Relaxed);
                }
                now_us()
            }));
        }
        // Streams that are silent anyway would prove nothing.
        let before = frames.load(Relaxed);
        tokio::time::sleep(Duration::from_millis(500)).await;
        if frames.load(Relaxed) - before < count as u64 {
            return Err("the streams do not flow".into());
        }
        println!("open");
        std::io::stdout().flush()?;
        // Whoever cuts them says when it began.
        let revoked = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map(|_| line)
        });
        let mut ended = 0;
        for one in held {
            ended = ended.max(one.await?);
        }
        let began: u64 = revoked.await??.trim().parse()?;
        let ms = |then: u64| then.saturating_sub(began) as f64 / 1e3;
        Ok(json!({ "last_byte_ms": ms(last.load(Relaxed)), "last_end_ms": ms(ended) }))
    }

    fn used(&self) -> Used {
        self.args.pid.map_or(Used::default(), |pid| family(pid).into_iter().map(Used::of).sum())
    }

    /// The peak of memory begins anew.
    fn reset_peak(&self) {
        for pid in self.args.pid.map(family).unwrap_or_default() {
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }
}

async fn drain(mut body: Incoming) -> Result<u64, Failure> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len) as u64;
    }
    Ok(bytes)
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// A process and all below it.
fn family(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = field(child, 4) {
            children.entry(parent as u32).or_default().push(child);
        }
    }
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(pid) = family.get(at) {
        let below = children.remove(pid).unwrap_or_default();
        family.extend(below);
        at += 1;
    }
    family
}

/// A number of `/proc/PID/stat`, by its place in proc(5).
fn field(pid: u32, number: usize) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(number - 3)?.parse().ok()
}

#[derive(Default)]
struct Used {
    /// Seconds on a processor.
    cpu: f64,
    resident_kib: u64,
    peak_kib: u64,
}

impl Used {
    fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let ticks = field(pid, 14).unwrap_or(0) + field(pid, 15).unwrap_or(0);
        // A hundred to the second, on every Linux.
        Self { cpu: ticks as f64 / 100.0, resident_kib: kib("VmRSS:"), peak_kib: kib("VmHWM:") }
    }
}

impl std::iter::Sum for Used {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            cpu: sum.cpu + one.cpu,
            resident_kib: sum.resident_kib + one.resident_kib,
            peak_kib: sum.peak_kib + one.peak_kib,
        })
    }
}
