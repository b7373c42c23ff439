//! Random policies against random requests: the compiled policy decides as the definition does.

use crate::{policy, rule};
use cofferdam_policy::{Effect, Policy, Request};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Simple {
    effect: &'static str,
    hosts: Vec<String>,
    methods: Vec<&'static str>,
    path: Option<String>,
    /// Some: a condition that is always this; broken where it cannot be evaluated.
    when: Option<Result<bool, ()>>,
}

const HOSTS: [&str; 4] = ["a.com", "x.a.com", "y.x.a.com", "b.org"];
const PATTERNS: [&str; 5] = ["a.com", "*.a.com", "*", "b.org", "*.org"];
const METHODS: [&str; 3] = ["GET", "POST", "PURGE"];
const PATHS: [&str; 4] = ["/", "/v1", "/v1/x", "/v2/x/y"];
const GLOBS: [&str; 5] = ["/**", "/v1/**", "/*", "/v2/**/y", "/v1"];

fn simple() -> impl Strategy<Value = Simple> {
    let hosts = prop::collection::vec(prop::sample::select(&PATTERNS[..]).prop_map(str::to_owned), 1..3);
    let methods = prop::collection::vec(prop::sample::select(&METHODS[..]), 0..3);
    let path = prop::option::of(prop::sample::select(&GLOBS[..]).prop_map(str::to_owned));
    let when = prop::option::weighted(0.3, prop_oneof![Just(Ok(true)), Just(Ok(false)), Just(Err(()))]);
    let effect = prop::sample::select(&["allow", "deny", "review"][..]);
    (effect, hosts, methods, path, when).prop_map(|(effect, hosts, methods, path, when)| Simple {
        effect,
        hosts,
        methods,
        path,
        when,
    })
}

fn written(rules: &[Simple]) -> Policy {
    let text: String = rules
        .iter()
        .enumerate()
        .map(|(at, simple)| {
            let mut fields = format!("host = {:?}\n", simple.hosts);
            if !simple.methods.is_empty() {
                fields += &format!("methods = {:?}\n", simple.methods);
            }
            if let Some(path) = &simple.path {
                fields += &format!("paths = {path:?}\n");
            }
            match simple.when {
                Some(Ok(value)) => {
                    fields += &format!("when = \"size(request.query) == {}\"\n", i32::from(!value))
                }
                Some(Err(())) => fields += "when = \"request.query.missing == ''\"\n",
                None => {}
            }
            rule(&format!("r{at}"), simple.effect, &fields)
        })
        .collect();
    policy(&text)
}

fn host_fits(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(below) => host.ends_with(&format!(".{below}")),
        None => pattern == "*" || pattern == host,
    }
}

fn path_fits(glob: &str, path: &str) -> bool {
    fn go(glob: &[&str], path: &[&str]) -> bool {
        match glob {
            [] => path.is_empty(),
            ["**", rest @ ..] => (0..=path.len()).any(|skip| go(rest, &path[skip..])),
            [one, rest @ ..] => {
                path.first().is_some_and(|first| *one == "*" || one == first) && go(rest, &path[1..])
            }
        }
    }
    let split = |text: &'static str| -> Vec<&'static str> {
        text.split('/').filter(|part| !part.is_empty()).collect()
    };
    let (glob, path): (&'static str, &'static str) = (
        GLOBS.iter().find(|known| **known == glob).unwrap(),
        PATHS.iter().find(|known| **known == path).unwrap(),
    );
    go(&split(glob), &split(path))
}

/// The definition: collect what matches, then the strongest wins.
fn naive(rules: &[Simple], host: &str, method: &str, path: &str) -> (Effect, Option<String>) {
    let fits = |simple: &Simple| {
        simple.hosts.iter().any(|pattern| host_fits(pattern, host))
            && (simple.methods.is_empty() || simple.methods.contains(&method))
            && simple.path.as_deref().is_none_or(|glob| path_fits(glob, path))
    };
    let typed: Vec<_> = rules.iter().enumerate().filter(|(_, simple)| fits(simple)).collect();
    let fires = |effect: &str| {
        typed
            .iter()
            .find(|(_, simple)| simple.effect == effect && matches!(simple.when, None | Some(Ok(true))))
    };
    let broken = typed.iter().find(|(_, simple)| simple.when == Some(Err(())));
    let named = |found: &(usize, &Simple)| Some(format!("r{}", found.0));
    if let Some(found) = fires("deny").or(broken) {
        (Effect::Deny, named(found))
    } else if let Some(found) = fires("review") {
        (Effect::Review, named(found))
    } else if let Some(found) = fires("allow") {
        (Effect::Allow, named(found))
    } else {
        (Effect::Deny, None)
    }
}

fn requests() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    HOSTS.iter().flat_map(|host| {
        METHODS.iter().flat_map(move |method| PATHS.iter().map(move |path| (*host, *method, *path)))
    })
}

fn decided(policy: &Policy, host: &str, method: &str, path: &str) -> (Effect, Option<String>) {
    let request = Request::parse(&format!("{method} https://{host}{path}")).unwrap();
    let decision = request.with(|action| policy.decide(action));
    (decision.effect, decision.rule_id().map(str::to_owned))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn deny_beats_review_beats_allow(rules in prop::collection::vec(simple(), 0..8)) {
        let policy = written(&rules);
        for (host, method, path) in requests() {
            let expected = naive(&rules, host, method, path);
            prop_assert_eq!(decided(&policy, host, method, path), expected, "{} {} {}", host, method, path);
        }
    }

    #[test]
    fn a_layer_only_narrows(
        floor in prop::collection::vec(simple(), 0..5),
        upper in prop::collection::vec(simple(), 0..5),
    ) {
        let both = Policy::layer(&written(&floor), &written(&upper));
        for (host, method, path) in requests() {
            let (below, above) = (naive(&floor, host, method, path), naive(&upper, host, method, path));
            prop_assert_eq!(decided(&both, host, method, path).0, below.0.min(above.0));
        }
    }

    #[test]
    fn what_is_called_shadowed_never_decides(rules in prop::collection::vec(simple(), 0..8)) {
        let policy = written(&rules);
        let useless: Vec<_> = policy.check().into_iter().filter_map(|finding| finding.rule).collect();
        for (host, method, path) in requests() {
            if let (_, Some(rule)) = decided(&policy, host, method, path) {
                prop_assert!(!useless.contains(&rule), "{} {:?}", rule, policy.check());
            }
        }
    }

    #[test]
    fn explaining_agrees_with_deciding(rules in prop::collection::vec(simple(), 0..8)) {
        let policy = written(&rules);
        for (host, method, path) in requests() {
            let request = Request::parse(&format!("{method} https://{host}{path}")).unwrap();
            let told = request.with(|action| policy.explain(action));
            let fired: Vec<_> = told.candidates.iter().filter(|rule| rule.fired).map(|rule| rule.id.as_str()).collect();
            prop_assert_eq!(fired, told.decision.rule_id().into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_suggested_rule_allows_what_was_denied(
        rules in prop::collection::vec(simple(), 0..4),
        path in "/[a-zA-Z0-9_*~!$ü-]{1,6}(/[a-z]{1,3}%20[a-z])?",
        port in 1u16..,
        host in "[a-z]{1,5}\\.[a-z]{2,4}",
    ) {
        let policy = written(&rules);
        let request = Request::parse(&format!("GET https://{host}:{port}{path}")).unwrap();
        let told = request.with(|action| policy.explain(action));
        prop_assert_eq!(told.suggestion.is_some(), told.decision.effect == Effect::Deny && told.decision.rule.is_none());
        if let Some(suggestion) = told.suggestion {
            let widened = crate::policy(&suggestion);
            let decision = request.with(|action| widened.decide(action));
            prop_assert!(decision.is_allowed(), "{}\n{}", suggestion, decision);
            // And nothing beside it.
            let other = Request::parse(&format!("GET https://{host}:{port}{path}/other")).unwrap();
            prop_assert!(!other.with(|action| widened.decide(action)).is_allowed());
        }
    }
}
