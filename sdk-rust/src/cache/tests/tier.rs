use proptest::prelude::*;

use super::super::versioned::written;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

proptest! {
    #[test]
    fn a_tier_outgrows_neither_its_size_nor_its_time(
        puts in prop::collection::vec((0_u8..40, 0_u64..4, 0_u64..5, any::<bool>()), 1..400),
        size in 1_usize..12,
    ) {
        let (mut tier, local) = (LocalTier::default(), Local { ttl: 3 * SECOND, size });
        let mut model = HashMap::new();
        let mut now = 100 * SECOND;
        for (key, fresh_secs, step, forgets) in puts {
            now += SECOND * step as u32 / 2;
            let key: Arc<str> = key.to_string().into();
            if forgets {
                tier.forget(&key);
                model.remove(&key);
            } else {
                let fresh = SECOND * fresh_secs as u32;
                let bytes = Bytes::from(now.as_millis().to_string());
                tier.keep(&key, Rule::Plain, local, Some(bytes.clone()), Duration::ZERO, fresh, now);
                if !fresh.is_zero() {
                    model.insert(Arc::clone(&key), (bytes, now + fresh.min(3 * SECOND)));
                }
            }
            let (entries, order) = tier.len();
            prop_assert!(entries <= size && order <= 2 * size + 17);
            for key in model.keys() {
                if let Some(entry) = tier.get(key, Rule::Plain, local, now) {
                    let (bytes, until) = &model[key];
                    prop_assert!(*until > now);
                    prop_assert_eq!(entry.content.as_ref(), Some(bytes));
                }
            }
        }
    }
}

#[test]
fn an_older_version_replaces_only_an_expired_newer_one() {
    let (mut tier, local) = (LocalTier::default(), Local { ttl: 3 * SECOND, size: 8 });
    let (key, rule): (Arc<str>, _) = ("a".into(), Rule::AtLeast(0));
    tier.keep(&key, rule, local, Some(written(7, b"new")), Duration::ZERO, SECOND, SECOND);
    tier.keep(&key, rule, local, Some(written(6, b"old")), Duration::ZERO, SECOND, SECOND);
    assert!(tier.get("a", Rule::AtLeast(7), local, SECOND).is_some());
    assert!(tier.get("a", Rule::AtLeast(8), local, SECOND).is_none());
    tier.keep(&key, rule, local, Some(written(6, b"old")), Duration::ZERO, SECOND, 2 * SECOND);
    assert!(tier.get("a", Rule::AtLeast(7), local, 2 * SECOND).is_none());
    assert!(tier.get("a", Rule::AtLeast(6), local, 2 * SECOND).is_some());
}
