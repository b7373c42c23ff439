//! What a call costs, from a table that is data. A model that no table has costs "not known", which is said and
//! never taken for nothing.

use cofferdam_model::Tokens;
use serde::Deserialize;

const OURS: &str = include_str!("prices.toml");
/// What a model may say if neither the request nor the table bounds it.
const OUTPUT_LIMIT: u64 = 32_768;
const MILLION: u64 = 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    #[error("the price table cannot be read: {0}")]
    Form(#[from] toml::de::Error),
    #[error(
        "the price of `{model}` says {field} = \"{value}\": write dollars for a million tokens, such as \"2.50\""
    )]
    Money { model: String, field: &'static str, value: String },
}

/// The tables that are asked, the first first.
#[derive(Debug, Clone, Default)]
pub struct Prices(Vec<Table>);

#[derive(Debug, Clone)]
pub(crate) struct Table {
    date: String,
    /// Whether somebody held its prices against the providers' own.
    checked: bool,
    /// As it was read, to be kept with what was reckoned by it.
    pub(crate) text: String,
    prices: Vec<Price>,
}

/// In millionths of a dollar for a million tokens.
#[derive(Debug, Clone)]
pub(crate) struct Price {
    model: String,
    input: u64,
    cached: u64,
    cache_written: u64,
    output: u64,
    output_limit: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    date: String,
    /// Whoever writes a table of their own vouches for it.
    #[serde(default = "yes")]
    checked: bool,
    #[serde(default)]
    price: Vec<PriceFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    model: String,
    input: String,
    output: String,
    cached: Option<String>,
    cache_written: Option<String>,
    output_limit: Option<u64>,
}

fn yes() -> bool {
    true
}

impl Prices {
    /// The table that comes with the program, after those that the operator has.
    pub fn new(own: Option<&str>) -> Result<Self, PriceError> {
        own.into_iter().chain([OURS]).map(Table::parse).collect::<Result<_, _>>().map(Self)
    }

    /// The price of a model, and the table that has it.
    pub(crate) fn find(&self, model: &str) -> Option<(&Price, &Table)> {
        self.0.iter().find_map(|table| {
            let found = table.prices.iter().filter(|price| is_named(model, &price.model));
            let longest = found.max_by_key(|price| price.model.len())?;
            Some((longest, table))
        })
    }
}

/// `name`, or `name` in some version.
fn is_named(model: &str, name: &str) -> bool {
    let Some(rest) = model.strip_prefix(name) else { return false };
    let is_date = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    match rest.split_at_checked(1) {
        None => true,
        Some(("-", version)) => {
            let digits = version.bytes().filter(u8::is_ascii_digit).count();
            version == "latest" || (is_date(version) && digits >= 3)
        }
        Some(("@", _)) => true,
        Some(_) => false,
    }
}

impl Table {
    /// When its prices were the list's, and how far that is known.
    pub(crate) fn standing(&self) -> String {
        format!("{}{}", self.date, if self.checked { "" } else { ", not checked" })
    }

    fn parse(text: &str) -> Result<Self, PriceError> {
        let file: TableFile = toml::from_str(text)?;
        let prices = file.price.into_iter().map(Price::read).collect::<Result<_, _>>()?;
        Ok(Self { date: file.date, checked: file.checked, text: text.to_owned(), prices })
    }
}

impl Price {
    fn read(file: PriceFile) -> Result<Self, PriceError> {
        let model = file.model;
        let money = |field: &'static str, text: &str| {
            let wrong = || PriceError::Money { model: model.clone(), field, value: text.to_owned() };
            cofferdam_policy::micro_dollars(text).filter(|price| *price < 1 << 40).ok_or_else(wrong)
        };
        let input = money("input", &file.input)?;
        let or_input =
            |field, text: &Option<String>| text.as_deref().map_or(Ok(input), |text| money(field, text));
        Ok(Self {
            input,
            cached: or_input("cached", &file.cached)?,
            cache_written: or_input("cache_written", &file.cache_written)?,
            output: money("output", &file.output)?,
            output_limit: file.output_limit.unwrap_or(OUTPUT_LIMIT),
            model,
        })
    }

    /// In millionths of a dollar, rounded up.
    pub(crate) fn cost(&self, tokens: &Tokens) -> u64 {
        let plain = tokens.input.saturating_sub(tokens.cached).saturating_sub(tokens.cache_written);
        let parts = [
            (plain, self.input),
            (tokens.cached, self.cached),
            (tokens.cache_written, self.cache_written),
            (tokens.output, self.output),
        ];
        let all: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        u64::try_from(all.div_ceil(u128::from(MILLION))).unwrap_or(u64::MAX)
    }

    /// The most that so much can cost: nothing comes from a cache, and all of it is written to one.
    pub(crate) fn worst(&self, tokens: &Tokens) -> u64 {
        self.cost(&Tokens { cache_written: 0, ..*tokens })
            .max(self.cost(&Tokens { cache_written: tokens.input, ..*tokens }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.model
    }

    pub(crate) fn output_limit(&self) -> u64 {
        self.output_limit
    }
}

/// What is assumed of a model that no table has.
pub(crate) const fn usual_output_limit() -> u64 {
    OUTPUT_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(model: &str) -> Option<String> {
        Prices::new(None).unwrap().find(model).map(|(price, _)| price.name().to_owned())
    }

    #[test]
    fn a_version_is_the_same_model_and_a_variant_is_not() {
        let check =
            |model: &str, expected: Option<&str>| assert_eq!(named(model).as_deref(), expected, "{model}");
        check("gpt-4o", Some("gpt-4o"));
        check("gpt-4o-2024-08-06", Some("gpt-4o"));
        check("gpt-4o-mini", Some("gpt-4o-mini"));
        check("gpt-4o-audio-preview", None);
        check("claude-sonnet-4-5", Some("claude-sonnet-4-5"));
        check("claude-sonnet-4-20250514", Some("claude-sonnet-4"));
        check("claude-sonnet-4-6", None);
        check("claude-opus-4-1-20250805", Some("claude-opus-4-1"));
        check("claude-opus-4-1@20250805", Some("claude-opus-4-1"));
        check("gemini-2.5-flash-001", Some("gemini-2.5-flash"));
        check("llama3.2:1b", None);
        check("", None);
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let prices = Prices::new(None).unwrap();
        let (price, table) = prices.find("claude-sonnet-4-5").unwrap();
        assert_eq!(table.standing(), "2025-11-15, not checked");
        let tokens = Tokens {
            input: 1_000_000,
            output: 100_000,
            cached: 400_000,
            cache_written: 200_000,
            reasoning: 7,
        };
        assert_eq!(price.cost(&tokens), 1_200_000 + 120_000 + 750_000 + 1_500_000);
        assert_eq!(price.cost(&Tokens { input: 1, ..Tokens::default() }), 3);
        let all = Tokens { input: u64::MAX, output: u64::MAX, ..Tokens::default() };
        assert_eq!(price.cost(&all), u64::MAX);
    }

    #[test]
    fn the_operators_table_goes_first_and_is_checked() {
        let own = "date = \"2030-01-01\"\n[[price]]\nmodel = \"gpt-4o\"\ninput = \"1\"\noutput = \"1\"\n\
            [[price]]\nmodel = \"llama3.2:1b\"\ninput = \"0\"\noutput = \"0\"\n";
        let prices = Prices::new(Some(own)).unwrap();
        assert_eq!(prices.find("gpt-4o").unwrap().1.standing(), "2030-01-01");
        assert_eq!(prices.find("llama3.2:1b").unwrap().0.cost(&Tokens { input: 9, ..Tokens::default() }), 0);
        assert_eq!(prices.find("o3").unwrap().1.standing(), "2025-11-15, not checked");
        for bad in ["date = 1", &own.replace("\"1\"", "\"-1\""), &own.replace("model", "modle")] {
            assert!(Prices::new(Some(bad)).is_err(), "{bad}");
        }
        let wrong = Prices::new(Some(&own.replacen("\"1\"", "\"cheap\"", 1))).unwrap_err().to_string();
        assert!(wrong.contains("`gpt-4o` says input = \"cheap\""), "{wrong}");
    }
}
