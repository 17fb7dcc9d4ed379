//! What the environment says of a broker.

use super::RabbitSettings;

fn read(pairs: &[(&str, &str)]) -> Result<RabbitSettings, crate::Error> {
    RabbitSettings::from_lookup("BALANCE_CREATE", |name| {
        pairs.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
    })
}

#[test]
fn the_variables_of_the_environment_are_read() {
    let settings = read(&[
        ("RABBITMQ_HOST", "broker"),
        ("RABBITMQ_PORT_AMQP", "3003"),
        ("RABBITMQ_VHOST", "a/b"),
        ("RABBITMQ_DEFAULT_USER", "producer"),
        ("RABBITMQ_DEFAULT_PASS", "p"),
        ("RABBITMQ_CONSUMER_USER", "consumer"),
        ("RABBITMQ_CONSUMER_PASS", "c"),
        ("RABBITMQ_NUMBERS_OF_WORKERS", "7"),
        ("RABBITMQ_NUMBERS_OF_PREFETCH", "20"),
        ("RABBITMQ_BALANCE_CREATE_QUEUE", "balances"),
    ])
    .unwrap();
    assert_eq!((settings.queue.as_str(), settings.workers, settings.prefetch), ("balances", 7, 20));
    assert_eq!(settings.total_prefetch(), 140);
    assert_eq!(settings.worker_settings().workers, 7);
    let consumer = settings.uri(settings.consumer.as_ref()).unwrap();
    let producer = settings.uri(settings.producer.as_ref()).unwrap();
    assert_eq!(
        (consumer.authority.host.as_str(), consumer.authority.port, consumer.vhost.as_str()),
        ("broker", 3003, "a/b")
    );
    assert_eq!(consumer.authority.userinfo.username, "consumer");
    assert_eq!(producer.authority.userinfo.username, "producer");
}

#[test]
fn omitted_variables_have_the_defaults() {
    let settings = read(&[("RABBITMQ_BALANCE_CREATE_QUEUE", "balances")]).unwrap();
    assert_eq!((settings.workers, settings.prefetch, settings.total_prefetch()), (5, 10, 50));
    assert_eq!(settings.clone().single_active(true).total_prefetch(), 32, "no more come back in their order");
    assert_eq!(settings.uri(None).unwrap().authority.port, 5672);
}

#[test]
fn a_missing_queue_and_a_wrong_number_are_named() {
    let missing = read(&[]).unwrap_err().to_string();
    assert_eq!(missing, "RABBITMQ_BALANCE_CREATE_QUEUE must name the queue");
    let wrong = read(&[("RABBITMQ_BALANCE_CREATE_QUEUE", "b"), ("RABBITMQ_NUMBERS_OF_WORKERS", "many")]).unwrap_err();
    assert_eq!(wrong.to_string(), "RABBITMQ_NUMBERS_OF_WORKERS must be a number, got many");
}

#[test]
fn passwords_are_not_shown() {
    let settings = RabbitSettings::new("amqp://a:hidden@host", "q").consumer("b", "hidden");
    assert!(!format!("{settings:?}").contains("hidden"));
}
