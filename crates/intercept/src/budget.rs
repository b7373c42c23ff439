//! What models may cost: the most that a call can cost is set aside before it leaves, and what it did cost is
//! counted when it has ended. So many calls at once cannot overshoot, and the next one is stopped, not the last.

use cofferdam_model::Stop;
use cofferdam_policy::Budget;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Money in millionths of a dollar, and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    pub(crate) micros: u64,
    pub(crate) tokens: u64,
}

#[derive(Debug, Default)]
struct Account {
    spent: Amount,
    aside: Amount,
}

/// The accounts of a session, by the budget's id. They outlive a change of the policy: a new limit counts what went
/// before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<String, Account>>>);

/// What is set aside for one call. Gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct Aside {
    ledger: Ledger,
    ids: Vec<String>,
    amount: Amount,
}

/// The id of the budget that a cap is. No policy can have one of that name.
pub(crate) const CAP: &str = "session cap";

impl Ledger {
    /// A cap counts from when it is set.
    pub(crate) fn begin_cap(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(CAP);
    }

    /// Whether anything is left at all.
    pub(crate) fn check<'a>(&self, budgets: impl Iterator<Item = &'a Budget>) -> Result<(), Stop> {
        let accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for budget in budgets {
            let spent = accounts.get(&budget.id).map(|account| account.spent).unwrap_or_default();
            if let Some(most) = budget.spend.filter(|most| spent.micros >= *most) {
                return Err(stop(format!(
                    "budget `{}` of {} is spent: ask for more",
                    budget.id,
                    dollars(most)
                )));
            }
            if let Some(most) = budget.tokens.filter(|most| spent.tokens >= *most) {
                return Err(stop(format!(
                    "budget `{}` of {most} tokens is used up: ask for more",
                    budget.id
                )));
            }
        }
        Ok(())
    }

    /// Sets aside what a call can cost at most. `price` is none where that is not known.
    pub(crate) fn set_aside<'a>(
        &self,
        budgets: impl Iterator<Item = &'a Budget>,
        tokens: u64,
        price: Option<u64>,
        model: &str,
    ) -> Result<Aside, Stop> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let amount = Amount { micros: price.unwrap_or(0), tokens };
        let mut ids = Vec::new();
        for budget in budgets.filter(|budget| budget.spend.is_some() || budget.tokens.is_some()) {
            let Account { spent, aside } = accounts.entry(budget.id.clone()).or_default();
            if let Some(most) = budget.spend {
                let Some(price) = price else { return Err(unpriced(&budget.id, model)) };
                let left = most.saturating_sub(spent.micros).saturating_sub(aside.micros);
                if price > left {
                    return Err(stop(format!(
                        "the call can cost {}, and budget `{}` has {} left: ask for fewer tokens at most, or for more",
                        dollars(price),
                        budget.id,
                        dollars(left)
                    )));
                }
            }
            if let Some(most) = budget.tokens {
                let left = most.saturating_sub(spent.tokens).saturating_sub(aside.tokens);
                if tokens > left {
                    return Err(stop(format!(
                        "the call can take {tokens} tokens, and budget `{}` has {left} left: ask for fewer at most, or for more",
                        budget.id
                    )));
                }
            }
            ids.push(budget.id.clone());
        }
        for id in &ids {
            if let Some(Account { aside, .. }) = accounts.get_mut(id) {
                aside.micros = aside.micros.saturating_add(amount.micros);
                aside.tokens = aside.tokens.saturating_add(amount.tokens);
            }
        }
        Ok(Aside { ledger: self.clone(), ids, amount })
    }
}

impl Aside {
    /// What is set aside.
    pub(crate) fn amount(&self) -> Amount {
        self.amount
    }

    /// Counts what the call did cost in the place of what was set aside.
    pub(crate) fn spend(self, spent: Amount) {
        let mut accounts = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.ids {
            let account = accounts.entry(id.clone()).or_default();
            account.spent.micros = account.spent.micros.saturating_add(spent.micros);
            account.spent.tokens = account.spent.tokens.saturating_add(spent.tokens);
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let mut accounts = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.ids {
            if let Some(Account { aside, .. }) = accounts.get_mut(id) {
                aside.micros = aside.micros.saturating_sub(self.amount.micros);
                aside.tokens = aside.tokens.saturating_sub(self.amount.tokens);
            }
        }
    }
}

fn stop(reason: String) -> Stop {
    Stop { cause: Stop::SPEND_CAP.to_owned(), reason }
}

fn unpriced(id: &str, model: &str) -> Stop {
    stop(format!(
        "the price of model `{model}` is not known, and budget `{id}` counts money: add it to prices.toml in the \
         state directory"
    ))
}

pub(crate) fn dollars(micros: u64) -> String {
    let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
    let part = format!("{part:06}");
    let part = part.trim_end_matches('0');
    format!("${whole}.{part:0<2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_policy::Policy;

    fn policy(limits: &str) -> Policy {
        Policy::parse(&format!("[[budget]]\nid = \"b\"\nhost = \"*\"\n{limits}\n")).unwrap()
    }

    #[test]
    fn the_worst_case_is_set_aside_and_the_cost_counted() {
        let (ledger, policy) = (Ledger::default(), policy("spend = 1.00"));
        let ask = |micros| ledger.set_aside(policy.all_budgets(), 10, Some(micros), "m");
        let first = ask(600_000).unwrap();
        let said = ask(600_000).unwrap_err();
        assert_eq!(said.cause, "spend-cap");
        assert_eq!(
            said.reason,
            "the call can cost $0.60, and budget `b` has $0.40 left: ask for fewer tokens at most, or for more"
        );
        first.spend(Amount { micros: 100_000, tokens: 5 });
        drop(ask(600_000).unwrap());
        ask(900_000).unwrap().spend(Amount { micros: 900_000, tokens: 5 });
        let spent = ledger.check(policy.all_budgets()).unwrap_err();
        assert_eq!(spent.reason, "budget `b` of $1.00 is spent: ask for more");
    }

    #[test]
    fn tokens_are_counted_without_a_price_and_money_is_not() {
        let ledger = Ledger::default();
        let tokens = policy("tokens = 100");
        assert!(ledger.set_aside(tokens.all_budgets(), 101, None, "m").is_err());
        ledger
            .set_aside(tokens.all_budgets(), 100, None, "m")
            .unwrap()
            .spend(Amount { micros: 0, tokens: 100 });
        assert!(ledger.check(tokens.all_budgets()).unwrap_err().reason.contains("100 tokens"));
        let money = policy("spend = 1");
        let said = Ledger::default().set_aside(money.all_budgets(), 1, None, "mine").unwrap_err();
        assert!(said.reason.starts_with("the price of model `mine` is not known"), "{said}");
    }

    #[test]
    fn money_reads_as_people_write_it() {
        let check = |micros, expected: &str| assert_eq!(dollars(micros), expected);
        check(0, "$0.00");
        check(1, "$0.000001");
        check(1_500_000, "$1.50");
        check(123_450_000, "$123.45");
    }
}
