//! The functions that compiled code may call without anyone having written the call. Processors made for a
//! decade do these as fast as any loop. One that is emulated takes a turn for every step, so what is long is moved eight
//! bytes at a time.

use core::arch::asm;
use core::ffi::{c_char, c_int};

/// # Safety
/// As in C: both regions are valid for `count` bytes and do not overlap.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    let (words, rest) = parts(count);
    let (mut at, mut left) = (to, from);
    // SAFETY: writes `count` bytes at `to` from `from`, which the caller vouches for: first so many words, and then what is
    // left.
    unsafe {
        if words > 0 {
            asm!("rep movsq", inout("rcx") words => _, inout("rdi") at, inout("rsi") left,
                options(nostack, preserves_flags));
        }
        asm!("rep movsb", inout("rcx") rest => _, inout("rdi") at => _, inout("rsi") left => _,
            options(nostack, preserves_flags));
    }
    to
}

/// Words of eight bytes, and the bytes that are left: below a length of so many, all of them.
const fn parts(count: usize) -> (usize, usize) {
    if count < 64 { (0, count) } else { (count / 8, count % 8) }
}

/// # Safety
/// As in C: both regions are valid for `count` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= count {
        // SAFETY: the destination does not start inside the source, so a forward copy reads each byte before
        // it is overwritten.
        return unsafe { memcpy(to, from, count) };
    }
    // SAFETY: backwards from the last byte, with the direction flag put back.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") count => _,
            inout("rdi") to.wrapping_add(count).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(count).wrapping_sub(1) => _,
            options(nostack));
    }
    to
}

/// # Safety
/// As in C: the region is valid for `count` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memset(to: *mut u8, byte: c_int, count: usize) -> *mut u8 {
    let (words, rest) = parts(count);
    let mut at = to;
    let word = u64::from(byte as u8) * 0x0101_0101_0101_0101;
    // SAFETY: writes `count` bytes at `to`, which the caller vouches for: first so many words, and then what is left.
    unsafe {
        if words > 0 {
            asm!("rep stosq", inout("rcx") words => _, inout("rdi") at, in("rax") word,
                options(nostack, preserves_flags));
        }
        asm!("rep stosb", inout("rcx") rest => _, inout("rdi") at => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As in C: both regions are valid for `count` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> c_int {
    for at in 0..count {
        // SAFETY: `at` is below `count`, for which the caller vouches. Volatile, or the loop would be
        // recognised as the very function it defines.
        let (a, b) = unsafe { (left.add(at).read_volatile(), right.add(at).read_volatile()) };
        if a != b {
            return c_int::from(a) - c_int::from(b);
        }
    }
    0
}

/// # Safety
/// As `memcmp`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, count) }
}

/// # Safety
/// As in C: a string that ends with NUL.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn strlen(text: *const c_char) -> usize {
    let mut length = 0;
    // SAFETY: every byte up to the NUL is readable; volatile for the reason given above.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves within one buffer, which is the harder case, and compares with what the language does.
    fn check_move(from: usize, to: usize, count: usize) {
        let mut ours: Vec<u8> = (0..=255).collect();
        let mut expected = ours.clone();
        expected.copy_within(from..from + count, to);
        let at = ours.as_mut_ptr();
        // SAFETY: both ranges lie within the buffer.
        unsafe { memmove(at.add(to), at.add(from), count) };
        assert_eq!(ours, expected, "{from} {to} {count}");
    }

    #[test]
    fn moves_in_both_directions() {
        for from in [0, 1, 7, 100] {
            for to in [0, 1, 7, 8, 100, 120] {
                for count in [0, 1, 2, 8, 33, 135] {
                    check_move(from, to, count);
                }
            }
        }
    }

    #[test]
    fn fills_compares_and_measures() {
        let mut bytes = [1_u8; 9];
        // SAFETY: within the arrays, and the text ends with NUL.
        unsafe {
            memset(bytes.as_mut_ptr().add(1), 0x107, 7);
            assert_eq!(bytes, [1, 7, 7, 7, 7, 7, 7, 7, 1]);
            let mut long = [1_u8; 103];
            memset(long.as_mut_ptr().add(1), 0x1ff, 101);
            assert!(long.iter().enumerate().all(|(at, byte)| *byte == if at % 102 == 0 { 1 } else { 0xff }));
            assert!(memcmp(b"abc".as_ptr(), b"abd".as_ptr(), 3) < 0);
            assert!(memcmp(b"ab\xff".as_ptr(), b"abd".as_ptr(), 3) > 0);
            assert_eq!(bcmp(b"abc".as_ptr(), b"abd".as_ptr(), 2), 0);
            assert_eq!((strlen(c"".as_ptr()), strlen(c"abc".as_ptr())), (0, 3));
        }
    }
}
