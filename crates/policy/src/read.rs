//! Reads TOML tables field by field, remembering where everything stood. A wrong field is noted and reading
//! goes on, so that one look at the errors shows them all; a key that nobody asked for is an error.

use crate::mistake::{Mistake, PolicyError, Spot, nearest};
use cofferdam_model::Bytes;
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Collects mistakes, and knows which byte stands on which line.
pub(crate) struct Notes<'t> {
    text: &'t str,
    line_starts: Vec<usize>,
    pub(crate) errors: Vec<PolicyError>,
}

impl<'t> Notes<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, line_starts, errors: Vec::new() }
    }

    pub(crate) fn spot(&self, offset: usize) -> Spot {
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        Spot { line, column }
    }

    pub(crate) fn wrong(&mut self, spot: Spot, field: impl Into<String>, mistake: impl Into<Mistake>) {
        self.errors.push(PolicyError { spot, field: field.into(), mistake: mistake.into() });
    }
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) spot: Spot,
}

/// A table being read.
pub(crate) struct Table<'a, 't> {
    /// As errors name it: `rule`, `rewrite.headers`.
    pub(crate) name: String,
    pub(crate) spot: Spot,
    table: &'a DeTable<'t>,
    known: &'static [&'static str],
}

impl<'a, 't> Table<'a, 't> {
    /// `known` are the keys it may have; the others are noted here and now.
    pub(crate) fn new(
        name: impl Into<String>,
        spot: Spot,
        table: &'a DeTable<'t>,
        known: &'static [&'static str],
        notes: &mut Notes<'_>,
    ) -> Self {
        let read = Self { name: name.into(), spot, table, known };
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let near = nearest(key.get_ref(), known.iter().copied());
            let spot = notes.spot(key.span().start);
            notes.wrong(spot, read.field(key.get_ref()), Mistake::UnknownKey { near, known });
        }
        read
    }

    /// The field as errors name it.
    pub(crate) fn field(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(crate) fn spot_of(&self, key: &str, notes: &Notes<'_>) -> Spot {
        let found = self.table.keys().find(|known| known.get_ref() == key);
        found.map_or(self.spot, |key| notes.spot(key.span().start))
    }

    fn get(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'t>>> {
        debug_assert!(self.known.contains(&key), "{key}");
        self.table.get(key)
    }

    pub(crate) fn missing(&self, key: &str, why: &'static str, notes: &mut Notes<'_>) {
        notes.wrong(self.spot, self.field(key), Mistake::Missing(why));
    }

    fn mistyped(&self, key: &str, want: &'static str, value: &Spanned<DeValue<'t>>, notes: &mut Notes<'_>) {
        let found = value.get_ref().type_str();
        let spot = notes.spot(value.span().start);
        notes.wrong(spot, self.field(key), Mistake::Type { want, found });
    }

    pub(crate) fn string(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<At<String>> {
        let value = self.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            self.mistyped(key, "a string", value, notes);
            return None;
        };
        Some(At { value: text.to_owned(), spot: notes.spot(value.span().start) })
    }

    /// A string or a list of them; an empty list could never match.
    pub(crate) fn strings(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<Vec<At<String>>> {
        self.one_or_many(key, "a string or a list of strings", notes, |value| {
            value.as_str().map(str::to_owned)
        })
    }

    pub(crate) fn integers(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<Vec<At<i64>>> {
        self.one_or_many(key, "a number or a list of numbers", notes, integer)
    }

    fn one_or_many<T>(
        &self,
        key: &'static str,
        want: &'static str,
        notes: &mut Notes<'_>,
        read: fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<Vec<At<T>>> {
        let value = self.get(key)?;
        let items: Vec<_> = match value.get_ref().as_array() {
            Some(items) => items.iter().collect(),
            None => vec![value],
        };
        if items.is_empty() {
            notes.wrong(notes.spot(value.span().start), self.field(key), Mistake::Empty);
            return None;
        }
        let mut found = Vec::with_capacity(items.len());
        for item in items {
            match read(item.get_ref()) {
                Some(value) => found.push(At { value, spot: notes.spot(item.span().start) }),
                None => self.mistyped(key, want, item, notes),
            }
        }
        Some(found)
    }

    pub(crate) fn integer(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<At<i64>> {
        let value = self.get(key)?;
        match integer(value.get_ref()) {
            Some(number) => Some(At { value: number, spot: notes.spot(value.span().start) }),
            None => {
                self.mistyped(key, "a whole number", value, notes);
                None
            }
        }
    }

    pub(crate) fn flag(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<bool> {
        let value = self.get(key)?;
        if value.get_ref().as_bool().is_none() {
            self.mistyped(key, "true or false", value, notes);
        }
        value.get_ref().as_bool()
    }

    /// A size as people write it, `10M`, or a number of bytes.
    pub(crate) fn size(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<u64> {
        let value = self.get(key)?;
        let spot = notes.spot(value.span().start);
        match (value.get_ref().as_str(), integer(value.get_ref())) {
            (Some(text), _) => match text.parse::<Bytes>() {
                Ok(bytes) => return Some(bytes.0),
                Err(error) => notes.wrong(spot, self.field(key), error),
            },
            (None, Some(number)) if number >= 0 => return u64::try_from(number).ok(),
            _ => self.mistyped(key, "a size as in \"10M\"", value, notes),
        }
        None
    }

    /// A number or the text of one, as it was written: money must not pass through a float.
    pub(crate) fn decimal(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<At<String>> {
        let value = self.get(key)?;
        let spot = notes.spot(value.span().start);
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            _ => {
                self.mistyped(key, "an amount as in 5.00", value, notes);
                return None;
            }
        };
        Some(At { value: text, spot })
    }

    pub(crate) fn table(
        &self,
        key: &'static str,
        known: &'static [&'static str],
        notes: &mut Notes<'_>,
    ) -> Option<Table<'a, 't>> {
        let (table, spot) = self.open(key, notes)?;
        Some(Table::new(self.field(key), spot, table, known, notes))
    }

    fn open(&self, key: &'static str, notes: &mut Notes<'_>) -> Option<(&'a DeTable<'t>, Spot)> {
        let value = self.get(key)?;
        let Some(table) = value.get_ref().as_table() else {
            self.mistyped(key, "a table", value, notes);
            return None;
        };
        Some((table, self.spot_of(key, notes)))
    }

    /// `[[key]]`, each read as a table of its own.
    pub(crate) fn tables(
        &self,
        key: &'static str,
        known: &'static [&'static str],
        notes: &mut Notes<'_>,
    ) -> Vec<Table<'a, 't>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            self.mistyped(key, "tables; write its header with two brackets,", value, notes);
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in items.iter() {
            let spot = notes.spot(item.span().start);
            match item.get_ref().as_table() {
                Some(table) => found.push(Table::new(self.field(key), spot, table, known, notes)),
                None => self.mistyped(key, "a table", item, notes),
            }
        }
        found
    }

    /// A table whose keys are the user's own: `headers = { accept = … }`.
    pub(crate) fn entries(
        &self,
        key: &'static str,
        notes: &mut Notes<'_>,
    ) -> Option<Vec<(At<String>, &'a Spanned<DeValue<'t>>)>> {
        let (table, _) = self.open(key, notes)?;
        let entry = |(key, value): (&'a Spanned<_>, _)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            (At { value: name.to_string(), spot: notes.spot(key.span().start) }, value)
        };
        Some(table.iter().map(entry).collect())
    }

    /// The value as JSON, whatever it is.
    pub(crate) fn json(&self, key: &'static str) -> Option<Json> {
        self.get(key).map(|value| to_json(value.get_ref()))
    }
}

pub(crate) fn to_json(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => Json::String(text.to_string()),
        DeValue::Integer(_) => integer(value).map_or(Json::Null, Json::from),
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Json::Null, Json::from),
        DeValue::Boolean(flag) => Json::Bool(*flag),
        DeValue::Datetime(time) => Json::String(time.to_string()),
        DeValue::Array(items) => Json::Array(items.iter().map(|item| to_json(item.get_ref())).collect()),
        DeValue::Table(table) => {
            Json::Object(table.iter().map(|(k, v)| (k.get_ref().to_string(), to_json(v.get_ref()))).collect())
        }
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}
