//! Arrays and objects. An object's members are written in the order they come and put into theirs at its
//! end, by one move of bytes and only when that differs.

use super::serializer::Canonical;
use super::{CanonicalError, Problem};
use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use std::cmp::Ordering;

/// Where one member of an open object stands in the buffer: `name` up to `colon`, value up to `end`.
pub(super) struct Member {
    name: usize,
    colon: usize,
    end: usize,
}

type Done = Result<(), CanonicalError>;

pub(super) struct Array<'s, 'a> {
    to: &'s mut Canonical<'a>,
    variant: Option<&'static str>,
    len: usize,
}

impl<'s, 'a> Array<'s, 'a> {
    pub(super) fn open(
        to: &'s mut Canonical<'a>,
        variant: Option<&'static str>,
    ) -> Result<Self, CanonicalError> {
        open_variant(to, variant)?;
        to.enter(b'[')?;
        Ok(Self { to, variant, len: 0 })
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        if self.len > 0 {
            self.to.out.push(b',');
        }
        let index = self.len;
        self.len += 1;
        value.serialize(&mut *self.to).map_err(|e| e.at_index(index))
    }

    fn close(self) -> Done {
        self.to.leave(b']');
        close_variant(self.to, self.variant);
        Ok(())
    }
}

pub(super) struct Object<'s, 'a> {
    to: &'s mut Canonical<'a>,
    variant: Option<&'static str>,
    /// The first of this object's members among those of all open objects.
    base: usize,
    /// Where its first member begins.
    start: usize,
}

impl<'s, 'a> Object<'s, 'a> {
    pub(super) fn open(
        to: &'s mut Canonical<'a>,
        variant: Option<&'static str>,
    ) -> Result<Self, CanonicalError> {
        open_variant(to, variant)?;
        to.enter(b'{')?;
        let (base, start) = (to.members.len(), to.out.len());
        Ok(Self { to, variant, base, start })
    }

    fn name<T: Serialize + ?Sized>(&mut self, name: &T) -> Done {
        if self.to.members.len() > self.base {
            self.to.out.push(b',');
        }
        let start = self.to.out.len();
        name.serialize(&mut *self.to)?;
        if self.to.out.get(start) != Some(&b'"') {
            return Err(Problem::Key.into());
        }
        let colon = self.to.out.len();
        self.to.out.push(b':');
        self.to.members.push(Member { name: start, colon, end: colon });
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        let Some(index) = self.to.members.len().checked_sub(1) else { return Err(Problem::Key.into()) };
        if let Err(error) = value.serialize(&mut *self.to) {
            let member = &self.to.members[index];
            return Err(error.inside(&name_text(&self.to.out[member.name..member.colon])));
        }
        self.to.members[index].end = self.to.out.len();
        Ok(())
    }

    fn close(self) -> Done {
        sort(self.to, self.base, self.start)?;
        self.to.members.truncate(self.base);
        self.to.leave(b'}');
        close_variant(self.to, self.variant);
        Ok(())
    }
}

/// Puts the members from `base` on, whose text begins at `start`, into canonical order.
fn sort(to: &mut Canonical<'_>, base: usize, start: usize) -> Done {
    let out: &[u8] = to.out;
    let name = |member: &Member| &out[member.name..member.colon];
    let members = &mut to.members[base..];
    if members.windows(2).all(|pair| order(name(&pair[0]), name(&pair[1])) == Ordering::Less) {
        return Ok(());
    }
    members.sort_by(|a, b| order(name(a), name(b)));
    if let Some(pair) = members.windows(2).find(|pair| name(&pair[0]) == name(&pair[1])) {
        return Err(Problem::Duplicate(name_text(name(&pair[0]))).into());
    }
    to.reordered.clear();
    for member in members.iter() {
        if !to.reordered.is_empty() {
            to.reordered.push(b',');
        }
        to.reordered.extend_from_slice(&out[member.name..member.end]);
    }
    to.out.truncate(start);
    to.out.extend_from_slice(to.reordered);
    Ok(())
}

/// Compares two written names by the UTF-16 units of what they stand for.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    let simple = |name: &[u8]| name.iter().all(|&byte| byte.is_ascii() && byte != b'\\');
    if simple(a) && simple(b) {
        // Without the closing quote, which would take part where one name begins with the other.
        return a[..a.len() - 1].cmp(&b[..b.len() - 1]);
    }
    name_text(a).encode_utf16().cmp(name_text(b).encode_utf16())
}

fn name_text(written: &[u8]) -> String {
    serde_json::from_slice(written).unwrap_or_default()
}

fn open_variant(to: &mut Canonical<'_>, variant: Option<&'static str>) -> Done {
    let Some(variant) = variant else { return Ok(()) };
    to.enter(b'{')?;
    variant.serialize(&mut *to)?;
    to.out.push(b':');
    Ok(())
}

fn close_variant(to: &mut Canonical<'_>, variant: Option<&'static str>) {
    if variant.is_some() {
        to.leave(b'}');
    }
}

impl SerializeSeq for Array<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.push(value)
    }
    fn end(self) -> Done {
        self.close()
    }
}

impl SerializeTuple for Array<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.push(value)
    }
    fn end(self) -> Done {
        self.close()
    }
}

impl SerializeTupleStruct for Array<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.push(value)
    }
    fn end(self) -> Done {
        self.close()
    }
}

impl SerializeTupleVariant for Array<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.push(value)
    }
    fn end(self) -> Done {
        self.close()
    }
}

impl SerializeMap for Object<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.name(key)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.value(value)
    }
    fn end(self) -> Done {
        self.close()
    }
}

impl SerializeStruct for Object<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Done {
        self.name(key)?;
        self.value(value)
    }
    fn end(self) -> Done {
        self.close()
    }
}

impl SerializeStructVariant for Object<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Done {
        self.name(key)?;
        self.value(value)
    }
    fn end(self) -> Done {
        self.close()
    }
}
