//! What the policy says of a command; nothing goes on that is not on record.

use super::Visit;
use crate::exchange::Exchange;
use crate::http::decide::{record_spent, settled};
use crate::http::forward::still_allowed;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::swap::state::Entry;
use crate::swap::{Used, UsedCredential};
use cofferdam_model::EgressDecided;
use cofferdam_policy::{Action, Decision, Effect, Ssh, SshCommand};
use std::sync::Arc;
use std::time::Instant;

/// Before the user's name, where there would be a query.
const USER: &str = "user=";

impl Visit {
    fn action<'a>(&'a self, user: &'a str, command: &'a SshCommand) -> Ssh<'a> {
        let program = self.program.as_deref();
        Ssh { host: &self.host, port: self.port, user, command, program }
    }

    /// Puts the decision on a command on record, or refuses.
    pub(super) async fn leave(
        &self,
        user: &str,
        command: &SshCommand,
        entry: &Entry,
    ) -> Result<(Arc<Rules>, Arc<Exchange>), Failure> {
        let began = Instant::now();
        self.session.is_open()?;
        let rules = self.session.rules.load_full();
        let spent = vec![UsedCredential { name: entry.name.clone(), generation: entry.generation }];
        let pending = {
            let ssh = self.action(user, command);
            let action = Action::Ssh(ssh);
            let decision = rules.policy().decide(&action);
            let mut event = self.asked(&ssh, &decision);
            // Whoever is asked sees what would be spent.
            event.credentials = spent.iter().map(|used| used.name.to_string()).collect();
            settled(&self.session, &rules, event, &decision, &action)?
        };
        let cleared = pending.wait(&self.session).await?;
        let meter = self.session.tallies.open(rules.policy().budgets(&self.host));
        let meter = meter.map_err(Failure::OverBudget)?;
        let (seq, event) = cleared.record(&self.session, &spent)?;
        record_spent(&self.session, seq, &event, &spent)?;
        let limits = (meter, rules.policy().large_transfer());
        let exchange = self.session.live.begin(seq, event, spent.clone(), limits, began);
        let used = Used { credentials: spent, ..Used::default() };
        still_allowed(&self.session, &rules, &used, &exchange)?;
        Ok((rules, exchange))
    }

    fn asked(&self, ssh: &Ssh<'_>, decision: &Decision) -> Box<EgressDecided> {
        Box::new(EgressDecided {
            via: self.via,
            scheme: "ssh".to_owned(),
            host: ssh.host.to_owned(),
            port: ssh.port,
            method: ssh.command.to_string(),
            path: String::new(),
            query: Some(format!("{USER}{}", ssh.user)),
            effect: decision.effect.into(),
            rule: decision.rule_id().map(str::to_owned),
            reason: decision.told(),
            program: self.program.as_deref().map(str::to_owned),
            credentials: Vec::new(),
        })
    }
}

/// What these rules say of a command that is on record.
pub(crate) fn again(asked: &EgressDecided, rules: &Rules) -> Effect {
    let Ok(command) = SshCommand::read(asked.method.as_bytes()) else { return Effect::Deny };
    let user = asked.query.as_deref().and_then(|query| query.strip_prefix(USER)).unwrap_or_default();
    let ssh = Ssh {
        host: &asked.host,
        port: asked.port,
        user,
        command: &command,
        program: asked.program.as_deref(),
    };
    rules.policy().decide(&Action::Ssh(ssh)).effect
}
