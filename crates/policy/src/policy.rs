//! A policy ready to decide: rules filed by what they are about, hosts by name, so that a request meets only
//! the rules that could concern it.

use crate::action::{Action, Http, Sql};
use crate::decision::Decision;
use crate::facts::Facts;
use crate::glob::Pattern;
use crate::host::{HostIndex, canonical};
use crate::judge::Fit;
use crate::mistake::{Mistake, PolicyError, PolicyErrors, Spot};
use crate::problem::Problem;
use crate::rule::{Effect, Rule, RuleName, SqlMatch, Subject};
use crate::schema::{self, Document};
use crate::settings::{Alert, Budget, Class, GuardAction, KnownHost, Occasion, Rewrite, Trigger, Upstream};
use std::sync::Arc;
use std::time::Duration;

/// One or several layers, the floor first; each can only narrow those below. Immutable and cheap to clone.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) layers: Vec<Arc<Layer>>,
}

/// How a session with a database is held, by the rules that concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlTerms {
    /// No rule lets anything but reading happen.
    pub read_only: bool,
    /// Rules name tables: then names must be found in one place.
    pub names_tables: bool,
}

/// One file.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) document: Document,
    hosts: HostIndex,
    /// Rules about anything but requests, which are few.
    others: Vec<u32>,
}

impl Policy {
    /// Reads a file; every mistake is told with its line, its field and what to write instead.
    pub fn parse(text: &str) -> Result<Self, PolicyErrors> {
        Ok(Self { layers: vec![Arc::new(Layer::new(schema::read(text)?))] })
    }

    /// Puts `upper` on `floor`: both must allow, and a deny or review of either holds.
    pub fn layer(floor: &Policy, upper: &Policy) -> Self {
        Self { layers: floor.layers.iter().chain(&upper.layers).cloned().collect() }
    }

    /// For a file that is not the operator's.
    pub fn require_no_operator_tables(&self) -> Result<(), PolicyErrors> {
        let upstreams = self.upstreams().map(|upstream| ("upstream", upstream.line));
        let alerts = self.alerts().map(|alert| ("alert", alert.line));
        let mistake = |(field, line): (&str, _)| PolicyError {
            spot: Spot { line, column: 1 },
            field: field.to_owned(),
            mistake: Mistake::NotOperator,
        };
        let known = self.known_hosts().map(|known| ("known_host", known.line));
        let mistakes: Vec<_> = upstreams.chain(alerts).chain(known).map(mistake).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(PolicyErrors(mistakes)) }
    }

    /// Decides. Allocates nothing unless a condition or the content of a body is reached.
    pub fn decide(&self, action: &Action<'_>) -> Decision {
        match action {
            Action::Sql(sql) => self.decide_sql(sql).0,
            other => self.decide_one(other),
        }
    }

    /// A statement is as forbidden as the worst of its acts; which one that is stands beside.
    pub fn decide_sql(&self, sql: &Sql<'_>) -> (Decision, usize) {
        let one = |at: usize| Action::Sql(Sql { acts: sql.acts.get(at..=at).unwrap_or_default(), ..*sql });
        let mut worst = (self.decide_one(&one(0)), 0);
        for at in 1..sql.acts.len() {
            let decision = self.decide_one(&one(at));
            // What is told is what was done, and not that a transaction was begun for it.
            if decision.effect < worst.0.effect {
                worst = (decision, at);
            }
        }
        worst
    }

    /// What a session with this database comes to under these rules, whatever is asked in it.
    pub fn sql_terms(&self, host: &str, port: u16, database: &str, user: &str) -> SqlTerms {
        let host = canonical(host).unwrap_or_default();
        let any = |patterns: &Option<Vec<Pattern>>, text: &str| {
            patterns.as_ref().is_none_or(|all| all.iter().any(|one| one.matches_str(text)))
        };
        let concerns = |wanted: &SqlMatch| {
            wanted.hosts.matches(&host)
                && wanted.ports.as_ref().is_none_or(|ports| ports.contains(&port))
                && any(&wanted.databases, database)
                && any(&wanted.users, user)
        };
        let rules = |layer: &Layer, fits: &dyn Fn(&Rule, &SqlMatch) -> bool| {
            layer.document.rules.iter().any(|rule| match &rule.subject {
                Subject::Sql(wanted) => concerns(wanted) && fits(rule, wanted),
                _ => false,
            })
        };
        let writes = |rule: &Rule, wanted: &SqlMatch| rule.name.effect != Effect::Deny && wanted.writes();
        SqlTerms {
            read_only: !self.layers.iter().all(|layer| rules(layer, &writes)),
            names_tables: self.layers.iter().any(|layer| rules(layer, &|_, wanted| wanted.tables.is_some())),
        }
    }

    fn decide_one(&self, action: &Action<'_>) -> Decision {
        let nothing = Decision { effect: Effect::Deny, rule: None, problem: None, contact: None, layer: 0 };
        self.strictest(action, |_| true).unwrap_or(nothing)
    }

    /// What those layers decide that have rules about actions of this kind (`exec`, `file`…); nothing where none has.
    /// What a layer says nothing of is not its to forbid, nor is it a leave from what another forbids: those who ask about
    /// commands and files ask this.
    pub fn rules_on(&self, action: &Action<'_>) -> Option<Decision> {
        self.strictest(action, |layer| layer.speaks_of(action))
    }

    /// Whether any layer has rules about actions of this kind.
    pub fn speaks_of(&self, action: &Action<'_>) -> bool {
        self.layers.iter().any(|layer| layer.speaks_of(action))
    }

    fn strictest(&self, action: &Action<'_>, asked: impl Fn(&Layer) -> bool) -> Option<Decision> {
        let facts = Facts::new(action);
        let mut decided: Option<Decision> = None;
        for (number, layer) in self.layers.iter().enumerate().filter(|(_, layer)| asked(layer)) {
            let decision = layer.decide(&facts, number);
            if decided.as_ref().is_none_or(|before| decision.effect < before.effect) {
                decided = Some(decision);
            }
        }
        decided
    }

    /// Whether a rule that could still match looks at the body, or at a length that is not known. Then collect
    /// up to [`MAX_BODY`](crate::MAX_BODY) bytes before asking for the decision.
    pub fn wants_body(&self, http: &Http<'_>) -> bool {
        if http.body.is_some() {
            return false;
        }
        let facts = Facts::new(&Action::Http(*http));
        let mut wants = false;
        for layer in &self.layers {
            layer.candidates(&facts, |_, rule| {
                let unseen = [Fit::Unknown(Problem::BodyUnseen), Fit::Unknown(Problem::LengthUnknown)];
                wants = wants || (rule.looks_at_body() && unseen.contains(&rule.judge(&facts)));
            });
        }
        wants
    }

    /// Whether any request to this host could be allowed, or held, whatever else it says. Most names that are asked
    /// for are not, and this is the cheapest way to know.
    pub fn knows(&self, host: &str) -> bool {
        let Ok(host) = canonical(host) else { return false };
        !self.layers.is_empty() && self.layers.iter().all(|layer| layer.knows(&host))
    }

    /// The names of all rules, the floor's first.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<RuleName>> {
        self.layers.iter().flat_map(|layer| &layer.document.rules).map(|rule| &rule.name)
    }

    /// The operator's word on where a host is reached.
    pub fn upstream(&self, host: &str) -> Option<&Upstream> {
        let host = canonical(host).ok()?;
        self.upstreams().find(|upstream| upstream.host == host)
    }

    pub fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.layers.iter().flat_map(|layer| &layer.document.upstreams)
    }

    /// The operator's word on which keys hosts have that are reached over SSH.
    pub fn known_hosts(&self) -> impl Iterator<Item = &KnownHost> {
        self.layers.iter().flat_map(|layer| &layer.document.known_hosts)
    }

    /// Whom the operator wants told.
    pub fn alerts(&self) -> impl Iterator<Item = &Alert> {
        self.layers.iter().flat_map(|layer| &layer.document.alerts)
    }

    /// Whether TLS to this host is left alone. That is less control, so every layer must say so.
    pub fn passes_through(&self, host: &str) -> bool {
        let Ok(host) = canonical(host) else { return false };
        !self.layers.is_empty() && self.layers.iter().all(|layer| layer.document.pass_through.matches(&host))
    }

    /// Whether the bodies of this host's exchanges stay off the record. That is less to look at afterwards, so every
    /// layer must say so.
    pub fn keeps_no_bodies(&self, host: &str) -> bool {
        let Ok(host) = canonical(host) else { return false };
        !self.layers.is_empty()
            && self.layers.iter().all(|layer| layer.document.without_bodies.matches(&host))
    }

    /// The changes to make, in order: the floor's come last, so that none undoes them.
    pub fn rewrites<'p>(&'p self, http: &Http<'_>) -> impl Iterator<Item = &'p Rewrite> {
        self.layers
            .iter()
            .rev()
            .flat_map(|layer| &layer.document.rewrites)
            .filter(|rewrite| rewrite.matches(http))
    }

    /// The tool that a request is a call of, by what the layers declare; the floor's word comes first.
    pub fn declared_tool(&self, http: &Http<'_>) -> Option<&str> {
        let mut all = self.layers.iter().flat_map(|layer| &layer.document.tools);
        all.find(|tool| tool.matches(http)).map(|tool| tool.name.as_str())
    }

    /// The budgets a host draws on: all of them, of all layers.
    pub fn budgets<'p>(&'p self, host: &str) -> impl Iterator<Item = &'p Budget> {
        self.all_budgets().filter(|budget| budget.hosts.matches_raw(host))
    }

    pub fn all_budgets(&self) -> impl Iterator<Item = &Budget> {
        self.layers.iter().flat_map(|layer| &layer.document.budgets)
    }

    /// What to do about a secret of this class on its way to this host: the strictest layer's word. None if
    /// every layer lets it pass.
    pub fn guard(&self, class: Class, host: &str) -> Option<GuardAction> {
        self.layers.iter().filter_map(|layer| layer.document.guard.action(class, host)).min()
    }

    /// How long a person has to answer what is held; the most impatient layer's word.
    pub fn review_timeout(&self) -> Option<Duration> {
        self.layers.iter().filter_map(|layer| layer.document.review_timeout).min()
    }

    /// The size from which a transfer is flagged.
    pub fn large_transfer(&self) -> Option<u64> {
        self.layers.iter().filter_map(|layer| layer.document.guard.large).min()
    }

    /// What happens by itself on this occasion.
    pub fn triggers<'p>(&'p self, occasion: &Occasion<'_>) -> impl Iterator<Item = &'p Trigger> {
        let all = self.layers.iter().flat_map(|layer| &layer.document.triggers);
        all.filter(|trigger| trigger.fires_on(occasion))
    }
}

/// How strong an outcome is: an explicit deny first, then what could not be judged, review, allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Denies,
    Fails,
    Reviews,
    Allows,
}

impl Layer {
    fn speaks_of(&self, action: &Action<'_>) -> bool {
        let about = |rule: &Rule| {
            matches!(
                (&rule.subject, action),
                (Subject::Exec { .. }, Action::Exec(_))
                    | (Subject::File { .. }, Action::File(_))
                    | (Subject::Tool { .. }, Action::Tool(_))
                    | (Subject::Browser { .. }, Action::Browser(_))
                    | (Subject::Step { .. }, Action::Step(_))
                    | (Subject::Http(_), Action::Http(_))
                    | (Subject::Sql(_), Action::Sql(_))
                    | (Subject::Ssh(_), Action::Ssh(_))
            )
        };
        self.document.rules.iter().any(about)
    }

    fn new(document: Document) -> Self {
        let (mut hosts, mut others) = (HostIndex::default(), Vec::new());
        for (rule, number) in document.rules.iter().zip(0..) {
            match &rule.subject {
                Subject::Http(http) => hosts.add(&http.page.hosts, number),
                _ => others.push(number),
            }
        }
        Self { document, hosts, others }
    }

    fn knows(&self, host: &str) -> bool {
        let mut knows = false;
        self.hosts.each(host, |number| {
            let rule = self.document.rules.get(number as usize);
            knows = knows || rule.is_some_and(|rule| rule.name.effect != Effect::Deny);
        });
        let others = self.others.iter().filter_map(|number| self.document.rules.get(*number as usize));
        knows
            || others.into_iter().any(|rule| match &rule.subject {
                Subject::Sql(sql) => rule.name.effect != Effect::Deny && sql.hosts.matches(host),
                Subject::Ssh(ssh) => rule.name.effect != Effect::Deny && ssh.hosts.matches(host),
                _ => false,
            })
    }

    /// Calls for each rule that could concern the action.
    pub(crate) fn candidates<'a>(&'a self, facts: &Facts<'_>, mut visit: impl FnMut(u32, &'a Rule)) {
        let mut show = |number: u32| {
            if let Some(rule) = self.document.rules.get(number as usize) {
                visit(number, rule);
            }
        };
        match (&facts.action, facts.host()) {
            (Action::Http(_), Ok(host)) => self.hosts.each(host, show),
            (Action::Http(_), Err(_)) => {}
            _ => self.others.iter().for_each(|number| show(*number)),
        }
    }

    fn decide(&self, facts: &Facts<'_>, layer: usize) -> Decision {
        let mut best: Option<(Strength, u32, &Rule)> = None;
        let mut problem = facts.host().err();
        self.candidates(facts, |number, rule| {
            let decided = |(strength, at, _): (Strength, u32, &Rule)| {
                strength == Strength::Denies && (rule.name.effect != Effect::Deny || number >= at)
            };
            if best.is_some_and(decided) {
                return;
            }
            let (strength, failure) = match (rule.judge(facts), rule.name.effect) {
                (Fit::No, _) => return,
                (Fit::Unknown(problem), _) => (Strength::Fails, Some(problem)),
                (Fit::Yes, Effect::Deny) => (Strength::Denies, None),
                (Fit::Yes, Effect::Review) => (Strength::Reviews, None),
                (Fit::Yes, Effect::Allow) => (Strength::Allows, None),
            };
            if best.is_none_or(|(before, at, _)| (strength, number) < (before, at)) {
                best = Some((strength, number, rule));
                problem = failure;
            }
        });
        let effect = match best {
            None if facts.action.is_restricted_only() => Effect::Allow,
            None | Some((Strength::Denies | Strength::Fails, ..)) => Effect::Deny,
            Some((Strength::Reviews, ..)) => Effect::Review,
            Some((Strength::Allows, ..)) => Effect::Allow,
        };
        let rule = best.map(|(_, _, rule)| Arc::clone(&rule.name));
        Decision { effect, rule, problem, contact: self.document.contact.clone(), layer }
    }
}
