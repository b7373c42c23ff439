//! From rules to BPF. System-call numbers that share a verdict are neighbours more often than not, so the
//! numbers become runs and the runs a balanced tree: some seven comparisons for any call, a program short
//! enough that installing it costs little, and constant verdicts the kernel can cache in its bitmap.

use std::collections::BTreeMap;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// Refused quietly with this errno.
    Refuse(u16),
    /// Refused, and the listener hears of it.
    Record,
    /// Let through once the listener has heard of it.
    Tell,
}

/// One argument (its low 32 bits) under a mask is one of these values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    pub arg: u8,
    pub mask: u32,
    pub one_of: &'static [u32],
}

/// `then` if all tests of any of the alternatives hold, else `otherwise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    pub any: &'static [&'static [Test]],
    pub then: Verdict,
    pub otherwise: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    Always(Verdict),
    Depends(Check),
}

impl Check {
    fn verdict(&self, args: &[u64; 6]) -> Verdict {
        let holds = |test: &Test| {
            let low = args.get(usize::from(test.arg)).map_or(0, |arg| *arg as u32);
            test.one_of.contains(&(low & test.mask))
        };
        match self.any.iter().any(|tests| tests.iter().all(holds)) {
            true => self.then,
            false => self.otherwise,
        }
    }
}

impl Rule {
    /// What the program does to a call with these arguments. They are values in registers, which the caller has
    /// given away: asked again later, the answer is the same.
    pub fn verdict(&self, args: &[u64; 6]) -> Verdict {
        match self {
            Self::Always(verdict) => *verdict,
            Self::Depends(check) => check.verdict(args),
        }
    }
}

/// A compiled filter, made once and shared by all boots.
pub struct Program(Vec<libc::sock_filter>);

impl Program {
    pub(super) fn instructions(&self) -> &[libc::sock_filter] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGS: u32 = 16;

const KILL_PROCESS: u32 = 0x8000_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Numbers past any real one: on x86-64 the x32 calls, which bypass tables of numbers.
const FOREIGN: u32 = 0x4000_0000;

fn op(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn ret(verdict: Verdict, notify: bool) -> libc::sock_filter {
    let value = match verdict {
        Verdict::Allow => ALLOW,
        Verdict::Refuse(errno) => ERRNO | u32::from(errno),
        Verdict::Record | Verdict::Tell if notify => USER_NOTIF,
        Verdict::Tell => ALLOW,
        Verdict::Record => ERRNO | libc::EPERM as u32,
    };
    op(RETURN, value, 0, 0)
}

/// Compiles `rules`, each for one call number; every other number gets `default`. Without `notify`, calls
/// that would be recorded are refused with EPERM.
pub fn compile(rules: BTreeMap<u32, Rule>, default: Verdict, notify: bool) -> Program {
    let mut runs: Vec<(u32, Rule)> = vec![(0, Rule::Always(default))];
    let mut next = 0;
    for (number, rule) in rules {
        if number > next {
            push_run(&mut runs, next, Rule::Always(default));
        }
        push_run(&mut runs, number, rule);
        next = number + 1;
    }
    push_run(&mut runs, next, Rule::Always(default));
    let mut program = vec![
        op(LOAD, OFFSET_ARCH, 0, 0),
        op(IF_EQUAL, ARCH, 1, 0),
        op(RETURN, KILL_PROCESS, 0, 0),
        op(LOAD, OFFSET_NUMBER, 0, 0),
        op(IF_AT_LEAST, FOREIGN, 0, 1),
        op(RETURN, KILL_PROCESS, 0, 0),
    ];
    program.extend(tree(&runs, notify));
    Program(program)
}

fn push_run(runs: &mut Vec<(u32, Rule)>, start: u32, rule: Rule) {
    match runs.last_mut() {
        Some((_, last)) if *last == rule && matches!(rule, Rule::Always(_)) => {}
        Some((at, last)) if *at == start => *last = rule,
        _ => runs.push((start, rule)),
    }
}

fn tree(runs: &[(u32, Rule)], notify: bool) -> Vec<libc::sock_filter> {
    match runs {
        [] => vec![op(RETURN, KILL_PROCESS, 0, 0)],
        [(_, Rule::Always(verdict))] => vec![ret(*verdict, notify)],
        [(_, Rule::Depends(check))] => block(check, notify),
        _ => {
            let (left, right) = runs.split_at(runs.len() / 2);
            let (pivot, left, right) = (right[0].0, tree(left, notify), tree(right, notify));
            let mut code = branch(IF_AT_LEAST, pivot, left.len());
            code.extend(left);
            code.extend(right);
            code
        }
    }
}

/// Skips `distance` instructions if the comparison holds; a far jump takes two instructions.
fn branch(code: u16, k: u32, distance: usize) -> Vec<libc::sock_filter> {
    match u8::try_from(distance) {
        Ok(near) => vec![op(code, k, near, 0)],
        Err(_) => vec![op(code, k, 0, 1), op(JUMP, distance as u32, 0, 0)],
    }
}

fn block(check: &Check, notify: bool) -> Vec<libc::sock_filter> {
    let mut code = Vec::new();
    for alternative in check.any {
        code.extend(conjunction(alternative, ret(check.then, notify)));
    }
    code.push(ret(check.otherwise, notify));
    code
}

/// All tests, then the verdict; the first test that fails jumps behind it.
fn conjunction(tests: &[Test], verdict: libc::sock_filter) -> Vec<libc::sock_filter> {
    let mut code = vec![verdict];
    for test in tests.iter().rev() {
        let mut head = vec![op(LOAD, OFFSET_ARGS + 8 * u32::from(test.arg), 0, 0)];
        if test.mask != u32::MAX {
            head.push(op(AND, test.mask, 0, 0));
        }
        for (position, &value) in test.one_of.iter().enumerate() {
            let to_rest = test.one_of.len() - position;
            head.extend(branch(IF_EQUAL, value, to_rest));
        }
        head.push(op(JUMP, code.len() as u32, 0, 0));
        head.extend(code);
        code = head;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small interpreter of the instructions we emit, so that filters are tested without installing them.
    fn run(program: &Program, arch: u32, number: u32, args: [u32; 6]) -> u32 {
        let (mut at, mut a) = (0usize, 0u32);
        loop {
            let i = &program.0[at];
            at += 1;
            match i.code {
                LOAD => {
                    a = match i.k {
                        OFFSET_NUMBER => number,
                        OFFSET_ARCH => arch,
                        k => args[((k - OFFSET_ARGS) / 8) as usize],
                    }
                }
                AND => a &= i.k,
                RETURN => return i.k,
                JUMP => at += i.k as usize,
                IF_EQUAL => at += usize::from(if a == i.k { i.jt } else { i.jf }),
                IF_AT_LEAST => at += usize::from(if a >= i.k { i.jt } else { i.jf }),
                other => panic!("instruction {other}"),
            }
        }
    }

    const SOCKETS: Check = Check {
        any: &[
            &[Test { arg: 0, mask: u32::MAX, one_of: &[1] }],
            &[Test { arg: 0, mask: u32::MAX, one_of: &[2, 10] }, Test { arg: 1, mask: 0xf, one_of: &[1, 2] }],
        ],
        then: Verdict::Allow,
        otherwise: Verdict::Record,
    };

    #[test]
    fn every_number_gets_its_rule_and_no_other() {
        let rules: Vec<(u32, Rule)> = (0..400)
            .filter(|n| n % 3 != 0)
            .map(|n| (n, Rule::Always(if n % 7 == 1 { Verdict::Record } else { Verdict::Allow })))
            .collect();
        let program = compile(rules.iter().copied().collect(), Verdict::Refuse(38), true);
        for n in 0..500 {
            let expected = match rules.iter().find(|(number, _)| *number == n) {
                Some((_, Rule::Always(Verdict::Record))) => USER_NOTIF,
                Some(_) => ALLOW,
                None => ERRNO | 38,
            };
            assert_eq!(run(&program, ARCH, n, [0; 6]), expected, "call {n}");
        }
    }

    #[test]
    fn arguments_decide() {
        let program = compile([(41, Rule::Depends(SOCKETS))].into(), Verdict::Allow, true);
        for (domain, kind, expected) in [
            (1, 5, ALLOW),
            (2, 1 | 0o2000000, ALLOW),
            (10, 2, ALLOW),
            (2, 3, USER_NOTIF),
            (17, 2, USER_NOTIF),
        ] {
            assert_eq!(run(&program, ARCH, 41, [domain, kind, 0, 0, 0, 0]), expected, "{domain} {kind}");
        }
        let quiet = compile([(41, Rule::Depends(SOCKETS))].into(), Verdict::Allow, false);
        assert_eq!(run(&quiet, ARCH, 41, [40, 1, 0, 0, 0, 0]), ERRNO | 1);
    }

    /// Whoever answers for the program must come to what the program came to.
    #[test]
    fn a_rule_asked_again_says_what_the_program_said() {
        let rules = [(41, Rule::Depends(SOCKETS)), (42, Rule::Always(Verdict::Tell))];
        let program = compile(rules.into(), Verdict::Allow, true);
        let mut seed = 7u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let args = [(seed >> 33) % 20, (seed >> 40) % 20, 0, 0, 0, 0];
            let (number, rule) = rules[(seed >> 60) as usize % 2];
            let said = run(&program, ARCH, number, args.map(|arg| arg as u32));
            let again = ret(rule.verdict(&args), true).k;
            assert_eq!(said, again, "{number} {args:?}");
        }
        let quiet = compile(rules.into(), Verdict::Allow, false);
        assert_eq!(run(&quiet, ARCH, 42, [0; 6]), ALLOW);
    }

    #[test]
    fn another_architecture_is_killed() {
        let program = compile(BTreeMap::new(), Verdict::Allow, false);
        assert_eq!(run(&program, 0x4000_0003, 0, [0; 6]), KILL_PROCESS);
        assert_eq!(run(&program, ARCH, FOREIGN | 1, [0; 6]), KILL_PROCESS);
    }
}
