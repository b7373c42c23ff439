//! Memory for one thread: blocks of powers of two from an arena that costs nothing until it is touched, and
//! mappings of their own for what is large. A freed block is kept for the next of its size.

use crate::syscall::{number, syscall};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

const SMALLEST: usize = 16;
/// Up to here blocks are kept; above they go back to the kernel.
const LARGEST: usize = 64 * 1024;
const CLASSES: usize = (LARGEST / SMALLEST).trailing_zeros() as usize + 1;
const ARENA: usize = 512 * 1024;
const PAGE: usize = 4096;

#[repr(C, align(4096))]
struct Arena(UnsafeCell<[u8; ARENA]>);

// SAFETY: this module is for programs of one thread.
unsafe impl Sync for Arena {}

/// The first arena is part of the program: no system call is needed to have it.
static FIRST: Arena = Arena(UnsafeCell::new([0; ARENA]));

struct Free {
    next: *mut Free,
}

struct State {
    free: [*mut Free; CLASSES],
    next: usize,
    end: usize,
}

pub struct Heap(UnsafeCell<State>);

// SAFETY: as for the arena.
unsafe impl Sync for Heap {}

struct Block {
    at: *mut u8,
    /// Never used before, so all zero.
    fresh: bool,
}

/// The size a request really takes, or `None` for one that cannot be.
fn rounded(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST);
    if size <= LARGEST {
        return size.checked_next_power_of_two();
    }
    // A mapping starts on a page, and nothing asks for more than that.
    if layout.align() > PAGE { None } else { size.checked_next_multiple_of(PAGE) }
}

/// Which list a block of this size is kept in; none for a mapping of its own.
fn class(size: usize) -> Option<usize> {
    (size <= LARGEST).then(|| (size / SMALLEST).trailing_zeros() as usize)
}

fn map(size: usize) -> *mut u8 {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    // SAFETY: a new mapping of the kernel's choosing; nothing existing is touched.
    let mapped = unsafe { syscall(number::MMAP, [0, size, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]) };
    mapped.map_or(ptr::null_mut(), |at| at as *mut u8)
}

impl State {
    /// Blocks are aligned to their size, up to a page.
    fn carve(&mut self, size: usize) -> *mut u8 {
        let start = self.next.next_multiple_of(size.min(PAGE));
        if self.next == 0 || start + size > self.end {
            let arena = if self.next == 0 { FIRST.0.get().cast() } else { map(ARENA) };
            if arena.is_null() {
                return arena;
            }
            (self.next, self.end) = (arena as usize, arena as usize + ARENA);
            return self.carve(size);
        }
        self.next = start + size;
        start as *mut u8
    }

    fn take(&mut self, size: usize) -> Block {
        match class(size).and_then(|class| self.free.get_mut(class)) {
            None => Block { at: map(size), fresh: true },
            Some(head) if head.is_null() => Block { at: self.carve(size), fresh: true },
            Some(head) => {
                let at = *head;
                // SAFETY: a block in the list is free, of this size, and begins with its link.
                *head = unsafe { (*at).next };
                Block { at: at.cast(), fresh: false }
            }
        }
    }
}

impl Heap {
    pub const fn new() -> Self {
        Self(UnsafeCell::new(State { free: [ptr::null_mut(); CLASSES], next: 0, end: 0 }))
    }

    fn take(&self, layout: Layout) -> Block {
        let Some(size) = rounded(layout) else { return Block { at: ptr::null_mut(), fresh: true } };
        // SAFETY: one thread, and no call below allocates: this is the only reference.
        unsafe { &mut *self.0.get() }.take(size)
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: blocks are valid, aligned and disjoint until they are given back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout).at
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = self.take(layout);
        if !block.fresh {
            // SAFETY: the block has at least the size asked for.
            unsafe { block.at.write_bytes(0, layout.size()) };
        }
        block.at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let Some(size) = rounded(layout) else { return };
        // SAFETY: one thread; the only reference.
        let state = unsafe { &mut *self.0.get() };
        let Some(head) = class(size).and_then(|class| state.free.get_mut(class)) else {
            // SAFETY: a large block is a mapping of its own, of exactly this size. It cannot fail.
            let _ = unsafe { syscall(number::MUNMAP, [at as usize, size]) };
            return;
        };
        let block = at.cast::<Free>();
        // SAFETY: the block is the caller's no longer and large enough for a link.
        unsafe { (*block).next = *head };
        *head = block;
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller vouches that the new size, rounded up to the alignment, is a valid one.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if rounded(layout) == rounded(wanted) {
            return at;
        }
        // SAFETY: a new block of the size wanted, of which the smaller part is copied; the old one is given
        // back as it was taken.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                ptr::copy_nonoverlapping(at, new, layout.size().min(size));
                self.dealloc(at, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Held {
        at: *mut u8,
        layout: Layout,
        mark: u8,
    }

    impl Held {
        fn check(&self) {
            // SAFETY: the block is held and was filled over its whole length.
            let bytes = unsafe { core::slice::from_raw_parts(self.at, self.layout.size()) };
            assert!(
                bytes.iter().all(|byte| *byte == self.mark),
                "a block of {:?} was overwritten",
                self.layout
            );
        }
    }

    fn take(heap: &Heap, size: usize, align: usize, mark: u8, zeroed: bool) -> Held {
        let layout = Layout::from_size_align(size, align).unwrap();
        // SAFETY: the size is not zero; the block is filled within its length.
        let at = unsafe { if zeroed { heap.alloc_zeroed(layout) } else { heap.alloc(layout) } };
        assert!(!at.is_null() && (at as usize).is_multiple_of(align));
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts_mut(at, size) };
        assert!(!zeroed || bytes.iter().all(|byte| *byte == 0), "a zeroed block is not");
        bytes.fill(mark);
        Held { at, layout, mark }
    }

    /// One test, for the heap's first arena is one for all heaps.
    #[test]
    fn blocks_are_disjoint_aligned_and_keep_their_bytes() {
        let heap = Heap::new();
        let mut held: Vec<Held> = Vec::new();
        let mut state = 1_usize;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..3000 {
            let largest = [100, 5000, 200_000][random(3)];
            let (size, align) = (1 + random(largest), 1 << random(8));
            match random(3) {
                0 | 1 if held.len() < 60 => held.push(take(&heap, size, align, round as u8, random(2) == 0)),
                2 if !held.is_empty() => {
                    let old = held.swap_remove(random(held.len()));
                    old.check();
                    // SAFETY: held, and with the layout it was taken with.
                    let at = unsafe { heap.realloc(old.at, old.layout, size) };
                    let layout = Layout::from_size_align(size, old.layout.align()).unwrap();
                    let kept = Layout::from_size_align(size.min(old.layout.size()), layout.align()).unwrap();
                    Held { at, layout: kept, mark: old.mark }.check();
                    // SAFETY: the new block has this size.
                    unsafe { at.write_bytes(old.mark, size) };
                    held.push(Held { at, layout, mark: old.mark });
                }
                _ if !held.is_empty() => {
                    let old = held.swap_remove(random(held.len()));
                    old.check();
                    // SAFETY: held, and given back with its layout.
                    unsafe { heap.dealloc(old.at, old.layout) };
                }
                _ => (),
            }
        }
        held.iter().for_each(Held::check);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        // SAFETY: not of size zero.
        assert!(unsafe { Heap::new().alloc(Layout::from_size_align(1 << 20, 1 << 16).unwrap()) }.is_null());
    }
}
