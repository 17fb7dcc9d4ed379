use super::*;

fn server(url: &str) -> ConnectionInfo {
    match Address::parse(url) {
        Ok(Address::Server(info)) => info,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn every_part_of_a_url_is_understood() {
    let info = server("redis://ann:s%2Fcret@example.org:7000/3");
    assert_eq!(info.addr(), &ConnectionAddr::Tcp("example.org".into(), 7000));
    let redis = info.redis_settings();
    assert_eq!((redis.username(), redis.password(), redis.db()), (Some("ann"), Some("s/cret"), 3));
    assert_eq!(redis.protocol(), ProtocolVersion::RESP3);
    assert_eq!(server("redis://h?protocol=resp2").redis_settings().protocol(), ProtocolVersion::RESP2);
    assert_eq!(server("redis://[::1]").addr(), &ConnectionAddr::Tcp("::1".into(), 6379));
    assert_eq!(server("unix:///run/r.sock?db=2").redis_settings().db(), 2);
    assert_eq!(server("redis+unix:///run/r.sock").addr(), &ConnectionAddr::Unix("/run/r.sock".into()));
    for (url, unchecked) in [("rediss://h", false), ("rediss://h#insecure", true), ("rediss://h/1#insecure", true)] {
        let info = server(url);
        let ConnectionAddr::TcpTls { insecure, .. } = info.addr() else { panic!("{url} is not TLS") };
        assert_eq!(*insecure, unchecked, "{url}");
    }
}

#[test]
fn clusters_and_sentinels_name_several_hosts() {
    let Ok(Address::Cluster(seeds)) = Address::parse("redis+cluster://u:p@a:1,b:2,[::1]:3") else { panic!() };
    let hosts: Vec<_> = seeds.iter().map(|seed| seed.addr().to_string()).collect();
    assert_eq!(hosts, ["a:1", "b:2", "::1:3"]);
    assert!(seeds.iter().all(|seed| seed.redis_settings().password() == Some("p")));
    let url = "redis+sentinel://u:p@a,b:9/orders/5?sentinel_user=s&sentinel_pass=q";
    let Ok(Address::Sentinel(sentinels)) = Address::parse(url) else { panic!() };
    let hosts: Vec<_> = sentinels.each.iter().map(|each| each.addr().to_string()).collect();
    assert_eq!((hosts, sentinels.service.as_str()), (vec!["a:26379".to_owned(), "b:9".to_owned()], "orders"));
    let (server, sentinel) = (sentinels.server.redis_settings(), sentinels.each[0].redis_settings());
    assert_eq!((server.password(), server.db()), (Some("p"), 5));
    assert_eq!((sentinel.username(), sentinel.password(), sentinel.db()), (Some("s"), Some("q"), 0));
}

#[test]
fn a_bad_url_is_refused_without_a_word_of_it() {
    for url in [
        "redis://:hunter2@",
        "redis://:hunter2@host.example:port",
        "redis://:hunter2@host.example/x",
        "redis://:hunter2@host.example/0/1",
        "redis://:hunter2@host.example,other.example",
        "redis://:hunter2@host.example?protcol=resp2",
        "redis://:hunter2@host.example?protocol=hunter2",
        "redis://:hunter2@host.example#insecure",
        "rediss://:hunter2@host.example#hunter2",
        "redis://:hun/ter2@host.example",
        "redis+cluster://:hunter2@host.example,,b",
        "redis+cluster://",
        "redis+sentinel://:hunter2@host.example",
        "redis+sentinel://:hunter2@host.example/service/x",
        "unix://hunter2@host.example?pass=hunter2&bd=1",
        "hunter2://host.example",
        "host.example hunter2",
    ] {
        let Err(error) = Address::parse(url) else { panic!("{url} was accepted") };
        let shown = format!("{error} {error:?}");
        assert!(matches!(error, Error::InvalidArgument(_)), "{url}: {shown}");
        for secret in ["hunter2", "ter2", "example"] {
            assert!(!shown.contains(secret), "{url}: {shown}");
        }
    }
}
