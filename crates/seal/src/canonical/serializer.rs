//! The serde side: every shape of serde's data model, written straight into one buffer.

use super::object::{Array, Member, Object};
use super::{CanonicalError, MAX_DEPTH, MAX_INTEGER, Problem, Scratch};
use serde::{Serialize, Serializer};

pub(super) struct Canonical<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) members: &'a mut Vec<Member>,
    pub(super) reordered: &'a mut Vec<u8>,
    depth: usize,
}

type Done = Result<(), CanonicalError>;

impl<'a> Canonical<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, scratch: &'a mut Scratch) -> Self {
        Self { out, members: &mut scratch.members, reordered: &mut scratch.reordered, depth: 0 }
    }

    pub(super) fn enter(&mut self, open: u8) -> Done {
        if self.depth == MAX_DEPTH {
            return Err(Problem::Depth.into());
        }
        self.depth += 1;
        self.out.push(open);
        Ok(())
    }

    pub(super) fn leave(&mut self, close: u8) {
        self.depth -= 1;
        self.out.push(close);
    }

    /// For text and integers, where serde_json's form is the canonical one.
    fn plain<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        serde_json::to_writer(&mut *self.out, value)
            .map_err(|error| Problem::Unwritable(error.to_string()).into())
    }

    fn integer<T: Serialize + Copy + Into<i128>>(&mut self, value: T) -> Done {
        let wide: i128 = value.into();
        if wide.unsigned_abs() > u128::from(MAX_INTEGER) {
            return Err(Problem::Integer(wide).into());
        }
        self.plain(&value)
    }
}

impl<'s, 'a> Serializer for &'s mut Canonical<'a> {
    type Ok = ();
    type Error = CanonicalError;
    type SerializeSeq = Array<'s, 'a>;
    type SerializeTuple = Array<'s, 'a>;
    type SerializeTupleStruct = Array<'s, 'a>;
    type SerializeTupleVariant = Array<'s, 'a>;
    type SerializeMap = Object<'s, 'a>;
    type SerializeStruct = Object<'s, 'a>;
    type SerializeStructVariant = Object<'s, 'a>;

    fn serialize_bool(self, v: bool) -> Done {
        self.out.extend_from_slice(if v { b"true" } else { b"false" });
        Ok(())
    }
    fn serialize_i8(self, v: i8) -> Done {
        self.integer(v)
    }
    fn serialize_i16(self, v: i16) -> Done {
        self.integer(v)
    }
    fn serialize_i32(self, v: i32) -> Done {
        self.integer(v)
    }
    fn serialize_i64(self, v: i64) -> Done {
        self.integer(v)
    }
    fn serialize_i128(self, v: i128) -> Done {
        self.integer(v)
    }
    fn serialize_u8(self, v: u8) -> Done {
        self.integer(v)
    }
    fn serialize_u16(self, v: u16) -> Done {
        self.integer(v)
    }
    fn serialize_u32(self, v: u32) -> Done {
        self.integer(v)
    }
    fn serialize_u64(self, v: u64) -> Done {
        self.integer(v)
    }
    fn serialize_f32(self, _: f32) -> Done {
        Err(Problem::Float.into())
    }
    fn serialize_f64(self, _: f64) -> Done {
        Err(Problem::Float.into())
    }
    fn serialize_char(self, v: char) -> Done {
        self.plain(&v)
    }
    fn serialize_str(self, v: &str) -> Done {
        self.plain(v)
    }
    fn serialize_bytes(self, v: &[u8]) -> Done {
        self.collect_seq(v)
    }
    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Done {
        self.out.extend_from_slice(b"null");
        Ok(())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Done {
        self.enter(b'{')?;
        self.serialize_str(variant)?;
        self.out.push(b':');
        value.serialize(&mut *self).map_err(|e| e.inside(variant))?;
        self.leave(b'}');
        Ok(())
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Array<'s, 'a>, CanonicalError> {
        Array::open(self, None)
    }
    fn serialize_tuple(self, _: usize) -> Result<Array<'s, 'a>, CanonicalError> {
        Array::open(self, None)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Array<'s, 'a>, CanonicalError> {
        Array::open(self, None)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Array<'s, 'a>, CanonicalError> {
        Array::open(self, Some(variant))
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Object<'s, 'a>, CanonicalError> {
        Object::open(self, None)
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Object<'s, 'a>, CanonicalError> {
        Object::open(self, None)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object<'s, 'a>, CanonicalError> {
        Object::open(self, Some(variant))
    }
}
