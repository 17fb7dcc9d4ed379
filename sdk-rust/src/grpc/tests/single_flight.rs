use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn lists_of_ids_are_equal_exactly_when_sorted_equal(
        mut one in prop::collection::vec("[a-c,]{0,3}", 0..5),
        mut other in prop::collection::vec("[a-c,]{0,3}", 0..5),
        seed in any::<prop::sample::Index>(),
    ) {
        let (digest_one, digest_other) = (digest(&one), digest(&other));
        let mut turned = one.clone();
        if !turned.is_empty() {
            let middle = seed.index(turned.len());
            turned.rotate_left(middle);
        }
        prop_assert_eq!(digest(&turned), digest_one);
        one.sort();
        other.sort();
        prop_assert_eq!(digest_one == digest_other, one == other);
    }
}
