//! Destinations that the policy passes through: the hello's name was checked, the bytes are counted, and
//! nothing in them is seen or changed. No credential can go this way.

use super::Stream;
use crate::http::decide::{self, Question};
use crate::http::forward::still_allowed;
use crate::http::upgrade::{Filters, relay};
use crate::rescue::Failure;
use crate::session::Session;
use crate::swap::Used;
use crate::upstream::dial::Route;
use cofferdam_model::{Ending, Via};
use std::sync::Arc;
use std::time::Instant;

pub(super) async fn splice(
    session: &Arc<Session>,
    client: Stream,
    via: Via,
    program: Option<Arc<str>>,
    host: Arc<str>,
    port: u16,
) -> Result<(), Failure> {
    let began = Instant::now();
    session.is_open()?;
    let rules = session.rules.load_full();
    let pending = {
        let question = Question::tunnel(via, &host, port, program.as_deref());
        decide::settle(session, &rules, &question, &question.decide(&rules), None)?
    };
    let cleared = pending.wait(session).await?;
    let meter = session.tallies.open(rules.policy().budgets(&host)).map_err(Failure::OverBudget)?;
    let (seq, event) = cleared.record(session, &[])?;
    let limits = (meter, rules.policy().large_transfer());
    let exchange = session.live.begin(seq, event, Vec::new(), limits, began);
    still_allowed(session, &rules, &Used::default(), &exchange)?;
    let route = Route { fixed: rules.fixed(&host).cloned(), host, port };
    let upstream = match session.pool.dialer().tcp(&route).await {
        Ok(upstream) => upstream,
        Err(error) => {
            exchange.explain(error.to_string());
            exchange.end(Ending::UpstreamFailed);
            return Err(error.into());
        }
    };
    relay(client, upstream, exchange, Filters::default()).await;
    Ok(())
}
