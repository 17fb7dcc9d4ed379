use super::*;

#[test]
fn the_table_is_in_the_order_of_the_codes() {
    for (index, code) in Code::all().enumerate() {
        assert_eq!(code as usize, index);
    }
    assert_eq!(Code::Internal as usize + 1, TABLE.len(), "every code has its row");
}

#[test]
fn a_failures_code_alone_says_whether_to_retry() {
    let open = || Error::CircuitOpen { name: "bank".into(), retry_after: Some(Duration::from_secs(3)) };
    let (own, refused) = (Failure::Inner("broken"), Failure::<&str>::Resil(open()));
    let exhausted: Failure<&str> = Failure::Exhausted { attempts: 3, last: Box::new(Failure::Resil(open())) };
    assert_eq!((own.is_retryable(), own.error()), (false, None));
    assert_eq!((refused.is_retryable(), refused.error()), (true, Some(open())));
    assert_eq!((exhausted.is_retryable(), exhausted.retry_after()), (false, Some(Duration::from_secs(3))));
    assert_eq!(exhausted.error(), Some(Error::RetryExhausted { attempts: 3 }));
}
