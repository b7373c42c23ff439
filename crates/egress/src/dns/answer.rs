//! From the bytes of a query to the bytes of an answer, or to none. No sockets here.

use super::{Query as Told, Tap, Verdict};
use crate::names::{self, NameError, Names};
use crate::quiet::Quiet;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Seconds. Policies change while clients run, so not for long.
const TTL: u32 = 30;
/// Queries a second, and how many may come at once.
const RATE: f64 = 1_000.0;
const BURST: f64 = 2_000.0;
/// Names longer than this, and words as long without a hyphen, are not those of hosts.
const LONG_NAME: usize = 150;
const LONG_LABEL: usize = 48;

/// What answers the queries of one session.
pub struct Desk {
    names: Arc<Names>,
    tap: Arc<dyn Tap>,
    quiet: Mutex<Quiet<(String, RecordType)>>,
    /// Names that were given an address; there are no more of them than `names` has addresses.
    named: Mutex<HashSet<String>>,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    left: f64,
    at: Option<Instant>,
}

/// What a question gets.
enum Answer {
    Records(Vec<RData>),
    /// The name exists; what was asked for does not.
    Nothing,
    NoSuchName,
    Refused(Verdict, ResponseCode),
}

impl Desk {
    pub fn new(names: Arc<Names>, tap: Arc<dyn Tap>) -> Arc<Self> {
        let bucket = Bucket { left: BURST, at: None };
        let (quiet, named) = (Mutex::new(Quiet::new()), Mutex::default());
        Arc::new(Self { names, tap, quiet, named, bucket: Mutex::new(bucket) })
    }

    /// The answer to a query; none to what is no query, or when there are too many.
    pub fn answer(&self, packet: &[u8], now: Instant) -> Option<Vec<u8>> {
        if !self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now) {
            return None;
        }
        let request = Message::from_vec(packet).ok()?;
        if request.metadata.message_type != MessageType::Query {
            return None;
        }
        let mut response = Message::response(request.metadata.id, request.metadata.op_code);
        response.metadata = Metadata::response_from_request(&request.metadata);
        response.metadata.recursion_available = true;
        response.edns = request.edns.is_some().then(Edns::new);
        let query = match &request.queries[..] {
            _ if request.metadata.op_code != OpCode::Query => {
                response.metadata.response_code = ResponseCode::NotImp;
                return response.to_vec().ok();
            }
            [query] => query,
            _ => {
                response.metadata.response_code = ResponseCode::FormErr;
                return response.to_vec().ok();
            }
        };
        response.add_query(query.clone());
        match self.decide(query) {
            Answer::Records(records) => {
                let record = |data| Record::from_rdata(query.name.clone(), TTL, data);
                response.add_answers(records.into_iter().map(record));
            }
            Answer::Nothing => {}
            Answer::NoSuchName => response.metadata.response_code = ResponseCode::NXDomain,
            Answer::Refused(verdict, code) => {
                self.tell(query, verdict, now);
                response.metadata.response_code = code;
            }
        }
        response.to_vec().ok()
    }

    fn decide(&self, query: &Query) -> Answer {
        let no_such = |verdict| Answer::Refused(verdict, ResponseCode::NXDomain);
        if query.query_class != DNSClass::IN {
            return Answer::Refused(Verdict::Kind, ResponseCode::Refused);
        }
        if query.query_type == RecordType::PTR {
            return self.reverse(&query.name);
        }
        let Ok(name) = names::normal(&query.name.to_ascii()) else { return no_such(Verdict::BadName) };
        if name == "localhost" || name.ends_with(".localhost") {
            return match query.query_type {
                RecordType::A => Answer::Records(vec![RData::A(A(Ipv4Addr::LOCALHOST))]),
                RecordType::AAAA => Answer::Records(vec![RData::AAAA(AAAA(Ipv6Addr::LOCALHOST))]),
                _ => Answer::Nothing,
            };
        }
        if !self.tap.knows(&name) {
            return no_such(Verdict::Unknown);
        }
        if looks_encoded(&name) {
            return no_such(Verdict::Encoded);
        }
        match query.query_type {
            RecordType::A => match self.names.address_of(&name) {
                Ok(address) => {
                    self.tell_named(name, address);
                    Answer::Records(vec![RData::A(A(address))])
                }
                Err(NameError::TooMany { .. }) => Answer::Refused(Verdict::TooMany, ResponseCode::Refused),
                Err(NameError::Bad { .. }) => no_such(Verdict::BadName),
            },
            // What every client asks for besides. Records that would point past us (or carry keys to hide a
            // name from us) do not exist.
            RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => Answer::Nothing,
            _ => Answer::Refused(Verdict::Kind, ResponseCode::Refused),
        }
    }

    fn tell_named(&self, name: String, address: Ipv4Addr) {
        let is_new = self.named.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        if is_new {
            self.tap.named(&name, address);
        }
    }

    /// Clients ask who an address is for their logs, so this is told to nobody.
    fn reverse(&self, name: &Name) -> Answer {
        let network = name.parse_arpa_name().ok();
        let address = network.filter(|net| net.prefix_len() == net.max_prefix_len()).map(|net| net.addr());
        let found = address.and_then(|address| self.names.name_of(address));
        match found.and_then(|name| Name::from_ascii(format!("{name}.")).ok()) {
            Some(name) => Answer::Records(vec![RData::PTR(PTR(name))]),
            None => Answer::NoSuchName,
        }
    }

    fn tell(&self, query: &Query, verdict: Verdict, now: Instant) {
        let name = query.name.to_ascii();
        let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = quiet.hear((name.to_ascii_lowercase(), query.query_type), now);
        drop(quiet);
        self.tell_counted(heard.counted);
        if heard.tell {
            self.tap.query(Told { name, kind: query.query_type.to_string(), verdict, times: 1 });
        }
    }

    fn tell_counted(&self, times: u64) {
        if times > 0 {
            let (name, kind) = (String::new(), String::new());
            self.tap.query(Told { name, kind, verdict: Verdict::Flood, times });
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let rest = self.quiet.get_mut().unwrap_or_else(PoisonError::into_inner).rest();
        self.tell_counted(rest);
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let passed = self.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        self.left = (self.left + passed * RATE).min(BURST);
        self.at = Some(now);
        let enough = self.left >= 1.0;
        self.left -= f64::from(u8::from(enough));
        enough
    }
}

/// Below a wildcard a sandbox may choose names. They are not passed on here, but a name that was allowed is
/// resolved for its request, so one that is shaped like data goes no further.
fn looks_encoded(name: &str) -> bool {
    let blob = |label: &str| label.len() >= LONG_LABEL && !label.contains('-');
    name.len() > LONG_NAME || name.split('.').any(blob)
}

#[cfg(test)]
mod tests {
    use super::super::Stray;
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Told>>, Mutex<Vec<String>>);

    impl Tap for Heard {
        fn knows(&self, name: &str) -> bool {
            name == "example.com" || name.ends_with(".wild.example")
        }
        fn named(&self, name: &str, address: Ipv4Addr) {
            self.1.lock().unwrap().push(format!("{name} {address}"));
        }
        fn query(&self, query: Told) {
            self.0.lock().unwrap().push(query);
        }
        fn stray(&self, stray: Stray) {
            panic!("{stray:?}");
        }
    }

    fn desk(most: usize) -> (Arc<Desk>, Arc<Heard>) {
        let heard = Arc::new(Heard::default());
        (Desk::new(Arc::new(Names::new(most)), heard.clone()), heard)
    }

    fn packet(name: &str, kind: RecordType) -> Vec<u8> {
        let labels = name.split('.').filter(|label| !label.is_empty()).map(str::as_bytes);
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(Name::from_labels(labels).unwrap(), kind));
        message.to_vec().unwrap()
    }

    fn ask(desk: &Desk, name: &str, kind: RecordType) -> Message {
        Message::from_vec(&desk.answer(&packet(name, kind), Instant::now()).expect("an answer")).unwrap()
    }

    #[track_caller]
    fn check(name: &str, kind: RecordType, code: ResponseCode, answer: &str, told: Option<Verdict>) {
        let (desk, heard) = desk(10);
        let message = ask(&desk, name, kind);
        assert_eq!(message.metadata.response_code, code, "{name} {kind}");
        let answers: Vec<String> = message.answers.iter().map(|record| record.data.to_string()).collect();
        assert_eq!(answers.join(","), answer, "{name} {kind}");
        assert_eq!((message.metadata.id, message.queries.len()), (7, 1));
        assert_eq!(heard.0.lock().unwrap().first().map(|query| query.verdict), told, "{name} {kind}");
    }

    #[test]
    fn known_names_have_an_address_and_others_do_not_exist() {
        use RecordType::{A, AAAA, HTTPS};
        use ResponseCode::{NXDomain, NoError};
        check("example.com.", A, NoError, "198.18.0.2", None);
        check("EXAMPLE.com.", A, NoError, "198.18.0.2", None);
        check("any.wild.example.", A, NoError, "198.18.0.2", None);
        check("example.com.", AAAA, NoError, "", None);
        check("example.com.", HTTPS, NoError, "", None);
        check("localhost.", A, NoError, "127.0.0.1", None);
        check("localhost.", AAAA, NoError, "::1", None);
        check("evil.example.", A, NXDomain, "", Some(Verdict::Unknown));
        check("example.com.evil.example.", A, NXDomain, "", Some(Verdict::Unknown));
        check("evil.example.", AAAA, NXDomain, "", Some(Verdict::Unknown));
        check("127.1.", A, NXDomain, "", Some(Verdict::BadName));
        check("-a.wild.example.", A, NXDomain, "", Some(Verdict::BadName));
        check("a b.wild.example.", A, NXDomain, "", Some(Verdict::BadName));
        check("\u{fc}.wild.example.", A, NXDomain, "", Some(Verdict::BadName));
        check(".", RecordType::NS, NXDomain, "", Some(Verdict::BadName));
    }

    #[test]
    fn records_that_could_carry_something_are_refused() {
        for kind in [
            RecordType::TXT,
            RecordType::NULL,
            RecordType::ANY,
            RecordType::MX,
            RecordType::SRV,
            RecordType::CNAME,
        ] {
            check("example.com.", kind, ResponseCode::Refused, "", Some(Verdict::Kind));
        }
        check("c2.evil.example.", RecordType::TXT, ResponseCode::NXDomain, "", Some(Verdict::Unknown));
    }

    #[test]
    fn names_that_are_data_are_refused_even_below_a_wildcard() {
        let blob = "mzxw6ytboi4dgnrtgaydcmbqgaytambrgeytgmjrgeztcmjr";
        let many = vec!["abcdefghij"; 14].join(".");
        for name in [format!("{blob}.wild.example."), format!("{many}.wild.example.")] {
            check(&name, RecordType::A, ResponseCode::NXDomain, "", Some(Verdict::Encoded));
        }
        // Real ones: an account's number, a long name of words.
        for name in
            ["0123456789abcdef0123456789abcdef", "prod-registry-k8s-io-us-west-2-dualstack-0a1b2c3d4e"]
        {
            check(&format!("{name}.wild.example."), RecordType::A, ResponseCode::NoError, "198.18.0.2", None);
        }
    }

    #[test]
    fn the_name_behind_an_address_is_told() {
        let (desk, heard) = desk(10);
        ask(&desk, "example.com.", RecordType::A);
        let back = ask(&desk, "2.0.18.198.in-addr.arpa.", RecordType::PTR);
        assert_eq!(back.answers[0].data.to_string(), "example.com.");
        let none = ask(&desk, "8.8.8.8.in-addr.arpa.", RecordType::PTR);
        assert_eq!(none.metadata.response_code, ResponseCode::NXDomain);
        assert!(heard.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_session_runs_out_of_names() {
        let (desk, heard) = desk(1);
        ask(&desk, "a.wild.example.", RecordType::A);
        let refused = ask(&desk, "b.wild.example.", RecordType::A);
        assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
        assert_eq!(heard.0.lock().unwrap()[0].verdict, Verdict::TooMany);
    }

    #[test]
    fn a_flood_is_counted() {
        let (desk, heard) = desk(10);
        for n in 0..500 {
            ask(&desk, &format!("x{n}.evil.example."), RecordType::A);
        }
        drop(desk);
        let told = heard.0.lock().unwrap();
        let last = told.last().unwrap();
        assert_eq!((told.len(), last.verdict, last.times), (101, Verdict::Flood, 400));
    }

    #[test]
    fn queries_come_only_so_fast() {
        let (desk, _) = desk(10);
        let now = Instant::now();
        let packet = packet("example.com.", RecordType::A);
        let answered = (0..10_000).filter(|_| desk.answer(&packet, now).is_some()).count();
        assert_eq!(answered, BURST as usize);
        assert!(desk.answer(&packet, now + std::time::Duration::from_secs(1)).is_some());
    }

    #[test]
    fn what_is_no_plain_query_gets_its_code_or_nothing() {
        let (desk, _) = desk(10);
        let code = |message: &Message| {
            let bytes = desk.answer(&message.to_vec().unwrap(), Instant::now())?;
            Some(Message::from_vec(&bytes).unwrap().metadata.response_code)
        };
        let query = || Query::query(Name::from_ascii("example.com.").unwrap(), RecordType::A);
        let mut two = Message::new(1, MessageType::Query, OpCode::Query);
        two.add_query(query()).add_query(query());
        assert_eq!(code(&two), Some(ResponseCode::FormErr));
        assert_eq!(code(&Message::new(1, MessageType::Query, OpCode::Query)), Some(ResponseCode::FormErr));
        let mut update = Message::new(1, MessageType::Query, OpCode::Update);
        update.add_query(query());
        assert_eq!(code(&update), Some(ResponseCode::NotImp));
        let mut answer = Message::new(1, MessageType::Response, OpCode::Query);
        answer.add_query(query());
        assert_eq!(code(&answer), None);
        let mut chaos = query();
        chaos.set_query_class(DNSClass::CH);
        let mut other = Message::new(1, MessageType::Query, OpCode::Query);
        other.add_query(chaos);
        assert_eq!(code(&other), Some(ResponseCode::Refused));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let (desk, _) = desk(10);
            let _ = desk.answer(&bytes, Instant::now());
        }

        /// A sound query with some bytes changed: it is answered soundly or not at all, and only with our addresses.
        #[test]
        fn a_damaged_query_gets_a_sound_answer_or_none(at in 0usize..30, value: u8, cut in 0usize..30) {
            let (desk, _) = desk(10);
            let mut bytes = packet("example.com.", RecordType::A);
            let last = bytes.len() - 1;
            bytes[at.min(last)] = value;
            bytes.truncate(bytes.len() - cut.min(last));
            if let Some(answer) = desk.answer(&bytes, Instant::now()) {
                let message = Message::from_vec(&answer).unwrap();
                prop_assert!(answer.len() <= 512);
                prop_assert!(message.answers.iter().all(|record| record.data.to_string() == "198.18.0.2"));
            }
        }
    }
}
