use crate::error::Error;
use crate::lock::LockSettings;

#[tokio::test]
async fn a_held_lock_is_granted_again_only_inside() {
    let client = crate::connect("memory://").await.unwrap();
    let lock = client.lock("stock", LockSettings::new()).unwrap();
    let guard = lock.acquire().await.unwrap();
    let held = guard.held();
    let again = held.reentrant(lock.try_acquire()).await.unwrap();
    assert_eq!(again.fence(), guard.fence());
    assert!(matches!(lock.try_acquire().await, Err(Error::LockTimeout { .. })));
    guard.release().await.unwrap();
    again.release().await.unwrap();
    assert!(matches!(held.reentrant(lock.try_acquire()).await, Err(Error::LockLost { .. })));
}
