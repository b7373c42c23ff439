//! The same for each of a list, on all cores, with what came of it in the list's order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn each<T: Sync, R: Send>(list: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let slots: Vec<Mutex<Option<R>>> = list.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_once().min(list.len()) {
            scope.spawn(|| {
                while let Some((one, slot)) =
                    Some(next.fetch_add(1, Ordering::SeqCst)).and_then(|at| list.get(at).zip(slots.get(at)))
                {
                    *super::pool::lock(slot) = Some(of(one));
                }
            });
        }
    });
    slots.iter().filter_map(|slot| super::pool::lock(slot).take()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_come_back_in_order() {
        let list: Vec<usize> = (0..1000).collect();
        assert_eq!(each(&list, |n| n * 2), list.iter().map(|n| n * 2).collect::<Vec<_>>());
        assert!(each(&[] as &[usize], |n| *n).is_empty());
    }
}
