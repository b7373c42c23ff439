//! From a name to a connection. Every address a name resolves to is judged, one bad address spoils the name,
//! and what is dialled is an address that was judged: there is no second lookup that could say otherwise.

use super::trust::{SystemTrust, Trust, TrustError};
use crate::address::{self, Forbidden};
use hickory_resolver::TokioResolver;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const CONNECT_TIME: Duration = Duration::from_secs(10);
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub(crate) enum DialError {
    #[error("`{host}` leads to an address that is refused: {source}")]
    Forbidden { host: String, source: Forbidden },
    #[error("`{host}` leads to this machine ({address}): name the service in an [[upstream]] to allow it")]
    ThisHost { host: String, address: IpAddr },
    #[error("`{host}` has no address ({reason}): check the name")]
    Unknown { host: String, reason: String },
    #[error("no connection to `{host}` ({source}): is it up?")]
    Connect { host: String, source: io::Error },
    #[error("`{host}` is not trusted or speaks no TLS ({source}): check its certificate")]
    Handshake { host: String, source: io::Error },
    #[error("nothing is reached in this session, so neither is `{0}`: it answers from a recording only")]
    Offline(String),
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// Where to go, and by whose word.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// An operator's override: this address and, where given, this trust.
    pub(crate) fixed: Option<(SocketAddr, Option<Trust>)>,
}

#[derive(Default)]
pub(crate) struct Dialer {
    resolver: OnceCell<TokioResolver>,
    system: SystemTrust,
    offline: bool,
}

impl Dialer {
    /// Reaches nothing: not even a name is looked up.
    pub(crate) fn offline() -> Self {
        Self { offline: true, ..Self::default() }
    }

    pub(crate) async fn tcp(&self, route: &Route) -> Result<TcpStream, DialError> {
        if self.offline {
            return Err(DialError::Offline(route.host.to_string()));
        }
        let addresses = match &route.fixed {
            Some((address, _)) => vec![*address],
            None => self.resolve(&route.host, route.port).await?,
        };
        let mut last = None;
        for address in addresses {
            match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small writes are whole requests here; waiting for more only adds delay.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(source)) => last = Some(source),
                Err(_) => last = Some(io::ErrorKind::TimedOut.into()),
            }
        }
        let source = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
        Err(DialError::Connect { host: route.host.to_string(), source })
    }

    pub(crate) async fn tls(&self, route: &Route, h2: bool) -> Result<TlsStream<TcpStream>, DialError> {
        let trust = self.trust(route)?;
        let config = if h2 { trust.h2.clone() } else { trust.h1.clone() };
        let tcp = self.tcp(route).await?;
        handshake(route, config, tcp).await
    }

    /// TLS on a connection on which it was agreed to speak it.
    pub(crate) async fn tls_over(
        &self,
        route: &Route,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        handshake(route, self.trust(route)?.bare.clone(), tcp).await
    }

    fn trust<'a>(&'a self, route: &'a Route) -> Result<&'a Trust, DialError> {
        match &route.fixed {
            Some((_, Some(trust))) => Ok(trust),
            _ => Ok(self.system.get()?),
        }
    }

    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.look_up(host).await?,
        };
        for address in &addresses {
            judge(host, *address)?;
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, DialError> {
        let unknown = |reason: String| DialError::Unknown { host: host.to_owned(), reason };
        let build = async { TokioResolver::builder_tokio()?.build() };
        let resolver = self.resolver.get_or_try_init(|| build).await.map_err(|e| unknown(e.to_string()))?;
        // The dot keeps the host's own search domains out of it.
        let found = resolver.lookup_ip(format!("{host}.")).await.map_err(|e| unknown(e.to_string()))?;
        let addresses: Vec<_> = found.iter().collect();
        if addresses.is_empty() { Err(unknown("no records".to_owned())) } else { Ok(addresses) }
    }
}

async fn handshake(
    route: &Route,
    config: Arc<rustls::ClientConfig>,
    tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, DialError> {
    let failed = |source| DialError::Handshake { host: route.host.to_string(), source };
    let name = rustls::pki_types::ServerName::try_from(route.host.to_string())
        .map_err(|e| failed(io::Error::new(io::ErrorKind::InvalidInput, e)))?;
    let handshake = TlsConnector::from(config).connect(name, tcp);
    timeout(HANDSHAKE_TIME, handshake)
        .await
        .map_err(|_| failed(io::ErrorKind::TimedOut.into()))?
        .map_err(failed)
}

fn judge(host: &str, address: IpAddr) -> Result<(), DialError> {
    address::judge(address).map_err(|source| DialError::Forbidden { host: host.to_owned(), source })?;
    // What cannot be told is refused.
    if address::is_this_host(address).unwrap_or(true) {
        return Err(DialError::ThisHost { host: host.to_owned(), address });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::{Message, Metadata, Query};
    use hickory_proto::rr::rdata::CNAME;
    use hickory_proto::rr::{Name, RData, Record, RecordType};
    use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;
    use std::net::Ipv4Addr;

    #[test]
    fn a7_a9_one_bad_address_spoils_the_name() {
        for bad in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00:ec2::254"] {
            assert!(judge("a.example", bad.parse().unwrap()).is_err(), "{bad}");
        }
        assert!(judge("a.example", "93.184.216.34".parse().unwrap()).is_ok());
    }

    /// A name server of the public internet's, as far as the dialer knows.
    fn asking(records: impl Fn(&Query, usize) -> Vec<Record> + Send + 'static) -> Dialer {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut way = ConnectionConfig::udp();
        way.port = socket.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut buffer, mut asked) = ([0; 4096], 0);
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let request = Message::from_vec(&buffer[..length]).unwrap();
                let mut response = Message::response(request.metadata.id, request.metadata.op_code);
                response.metadata = Metadata::response_from_request(&request.metadata);
                let query = request.queries[0].clone();
                asked += usize::from(query.query_type == RecordType::A);
                response.add_answers(records(&query, asked));
                response.add_query(query);
                let _ = socket.send_to(&response.to_vec().unwrap(), from);
            }
        });
        let servers = vec![NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![way])];
        let config = ResolverConfig::from_name_servers(servers);
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        Dialer { resolver: OnceCell::new_with(Some(resolver.build().unwrap())), ..Dialer::default() }
    }

    const PUBLIC: &str = "93.184.216.34";

    fn a(name: &str, address: &str) -> Record {
        Record::from_rdata(Name::from_ascii(name).unwrap(), 0, RData::A(address.parse().unwrap()))
    }

    #[tokio::test]
    async fn a8_a9_a_name_is_what_all_its_records_say() {
        let dialer = asking(|query, _| {
            let name = query.name.to_ascii();
            match (name.as_str(), query.query_type) {
                ("public.example.", RecordType::A) => vec![a(&name, PUBLIC)],
                ("mixed.example.", RecordType::A) => vec![a(&name, PUBLIC), a(&name, "10.0.0.1")],
                ("six.example.", RecordType::A) => vec![a(&name, PUBLIC)],
                ("six.example.", RecordType::AAAA) => {
                    let address = RData::AAAA("::ffff:127.0.0.1".parse().unwrap());
                    vec![Record::from_rdata(query.name.clone(), 0, address)]
                }
                ("chain.example.", RecordType::A) => {
                    let inner = RData::CNAME(CNAME(Name::from_ascii("inner.example.").unwrap()));
                    let chain = Record::from_rdata(query.name.clone(), 0, inner);
                    vec![chain, a("inner.example.", "192.168.7.7")]
                }
                _ => vec![],
            }
        });
        let address: SocketAddr = format!("{PUBLIC}:443").parse().unwrap();
        assert_eq!(dialer.resolve("public.example", 443).await.unwrap(), [address]);
        for bad in ["mixed.example", "six.example", "chain.example"] {
            let said = dialer.resolve(bad, 443).await;
            assert!(matches!(said, Err(DialError::Forbidden { .. })), "{bad}: {said:?}");
        }
        assert!(matches!(dialer.resolve("none.example", 443).await, Err(DialError::Unknown { .. })));
    }

    /// A name that becomes another one between two connections is judged again, by what it has become.
    #[tokio::test]
    async fn a10_a_name_that_turns_inward_is_refused() {
        let dialer = asking(|query, asked| match query.query_type {
            RecordType::A if asked == 1 => vec![a("turns.example.", PUBLIC)],
            RecordType::A => vec![a("turns.example.", "169.254.169.254")],
            _ => vec![],
        });
        assert!(dialer.resolve("turns.example", 443).await.is_ok());
        let said = dialer.resolve("turns.example", 443).await;
        assert!(matches!(said, Err(DialError::Forbidden { .. })), "{said:?}");
    }

    #[test]
    fn who_is_offline_reaches_not_even_what_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fixed = Some((listener.local_addr().unwrap(), None));
        let route = Route { host: "a.example".into(), port: 443, fixed };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert!(matches!(Dialer::offline().tcp(&route).await, Err(DialError::Offline(_))));
            assert!(Dialer::default().tcp(&route).await.is_ok());
        });
    }
}
