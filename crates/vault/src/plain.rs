//! The one type that holds a plain secret. It has no `Debug`, no `Display`, no `Clone` and no serde, so it
//! cannot reach a log, an error or a trace by accident; it is wiped when dropped.

use zeroize::Zeroizing;

pub struct Plain(Zeroizing<Vec<u8>>);

impl Plain {
    pub fn new(value: Vec<u8>) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The only way out. Who calls this answers for where the bytes go.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// Whether both are the same value, in a time that does not tell how nearly.
    pub fn same(&self, other: &Plain) -> bool {
        cofferdam_seal::same(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    /// Does not compile if the type has the trait: then two impls fit, and neither can be chosen.
    macro_rules! lacks {
        ($type:ty: $($bound:path),+) => { $({
            trait AmbiguousIfItHas<A> { fn here() {} }
            impl<T: ?Sized> AmbiguousIfItHas<()> for T {}
            struct Has;
            impl<T: ?Sized + $bound> AmbiguousIfItHas<Has> for T {}
            let _ = <$type as AmbiguousIfItHas<_>>::here;
        })+ };
    }

    #[test]
    fn a_plain_value_cannot_be_shown_copied_or_written() {
        lacks!(Plain: fmt::Debug, fmt::Display, fmt::LowerHex, Clone, serde::Serialize, serde::de::DeserializeOwned, PartialEq, AsRef<[u8]>, std::ops::Deref);
        lacks!(crate::Bound: fmt::Debug, Clone, serde::Serialize);
    }

    #[test]
    fn values_are_compared_without_being_shown() {
        let [a, b, c] = ["abc", "abc", "abd"].map(|text| Plain::new(text.into()));
        assert!(a.same(&b) && !a.same(&c));
        assert_eq!(a.reveal(), b"abc");
    }
}
