//! A batch is work that never mistakes the end of its time for the end of the work.

use resil_core::batch;

fn countdown(mut left: u32) -> impl FnMut() -> bool {
    move || {
        let any = left > 0;
        left = left.saturating_sub(1);
        any
    }
}

#[test]
fn a_batch_whose_time_is_used_up_still_does_one() {
    let mut work = countdown(3);
    assert_eq!([0; 4].map(|_| batch::run(8, || true, &mut work)), [1, 1, 1, 0]);
}

#[test]
fn a_batch_with_time_does_all_up_to_its_size() {
    let mut work = countdown(11);
    assert_eq!([0; 3].map(|_| batch::run(8, || false, &mut work)), [8, 3, 0]);
}
