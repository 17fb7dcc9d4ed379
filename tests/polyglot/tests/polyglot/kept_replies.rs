//! One `Idempotency-Key`, sent to shops in three languages: one of them makes the order, and all give its response, byte for byte.

use serde_json::Value as Json;

use crate::shops::{Order, Shops};

/// Every byte, so that nothing that changes text goes unseen.
fn every_byte() -> Vec<u8> {
    (0..=255).chain((0..=255).rev()).collect()
}

/// A path and a query that nobody may write in another way.
const TARGET: &str = "/orders/gr%C3%BCn%2ftea;a=1?note=a%20b+c&note=&x=%7E";

#[test]
fn all_give_the_status_headers_and_bytes_of_the_first() {
    let opened = Shops::in_each_language();
    let shops = &opened.shops;
    let bytes = every_byte();
    for (turn, first) in shops.iter().enumerate() {
        for (status, body) in [(201, &bytes[..]), (201, b""), (204, &bytes), (404, &bytes)] {
            let key = format!("\"{status}-{}-{turn}\"", body.len());
            let order = Order { key: &key, target: TARGET, status: Some(status), body };
            let reply = first.ask(&order);
            let made_by = format!("{:?}", first.language).to_lowercase();
            assert_eq!((reply.status, reply.is_replayed), (status, false), "{made_by}: {reply:?}");
            assert_eq!(reply.header("x-shop"), Some(made_by));
            assert_eq!(reply.body, if status == 204 { b"" } else { body });
            let values =
                |wanted| reply.headers.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| &value[..]);
            assert_eq!(values("set-cookie").collect::<Vec<_>>(), [b"a=1", b"b=2"]);
            assert_eq!(values("x-odd").collect::<Vec<_>>(), [b"gr\xfcn, \"2\""]);
            for shop in shops {
                let again = shop.ask(&order);
                assert_eq!(again.says(), reply.says(), "{:?} after {:?}", shop.language, first.language);
                assert!(again.is_replayed, "{:?} does not say that it is {:?}'s", shop.language, first.language);
            }
        }
        assert_eq!(first.made(), 4, "{:?}", first.language);
    }
    assert_eq!(shops.iter().map(|shop| shop.made()).sum::<usize>(), 12, "every order was made once");
}

#[test]
fn another_request_is_422_and_one_without_key_is_refused() {
    let opened = Shops::in_each_language();
    let shops = &opened.shops;
    for (turn, first) in shops.iter().enumerate() {
        let key = format!("k{turn}");
        let order = Order { key: &key, target: TARGET, status: None, body: b"tea" };
        assert_eq!(first.ask(&order).status, 201);
        let others = [
            Order { body: b"coffee", ..order.clone() },
            Order { body: b"", ..order.clone() },
            Order { target: "/orders/gr%C3%BCn%2Ftea;a=1?note=a%20b+c&note=&x=%7E", ..order.clone() },
            Order { target: "/orders/gr%C3%BCn%2ftea;a=1?note=a%20b+c&note=", ..order.clone() },
        ];
        for other in &others {
            let refused: Vec<_> = shops.iter().map(|shop| shop.ask(other)).collect();
            for (shop, reply) in shops.iter().zip(&refused) {
                let problem: Json = serde_json::from_slice(&reply.body).expect("a problem is JSON");
                assert_eq!(
                    (reply.status, &problem["code"]),
                    (422, &"IDEMPOTENCY_MISMATCH".into()),
                    "{:?}",
                    shop.language
                );
                assert_eq!(reply, &refused[0], "{:?} says it in another way", shop.language);
            }
        }
        let without = shops.iter().map(|shop| shop.ask(&Order { key: "", ..order.clone() })).collect::<Vec<_>>();
        assert_eq!(without[0].status, 400);
        assert!(without.iter().all(|reply| reply == &without[0]), "{without:?}");
    }
    assert_eq!(shops.iter().map(|shop| shop.made()).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn what_one_language_failed_to_make_another_makes() {
    let opened = Shops::in_each_language();
    let shops = &opened.shops;
    for turn in 0..shops.len() {
        let [first, second, third] = [0, 1, 2].map(|step| &shops[(turn + step) % 3]);
        let key = format!("failed-{turn}");
        let order = Order { key: &key, target: "/orders", status: Some(503), body: b"tea" };
        assert_eq!(first.ask(&order).status, 503);
        let made = second.ask(&Order { status: None, ..order.clone() });
        assert_eq!((made.status, made.is_replayed), (201, false), "{:?} after {:?}", second.language, first.language);
        let again = third.ask(&order);
        assert_eq!((again.says(), again.is_replayed), (made.says(), true));
    }
    assert_eq!(shops.iter().map(|shop| shop.made()).sum::<usize>(), 6, "each key failed once and was made once");
}

#[test]
fn of_many_in_all_languages_one_makes_the_order() {
    let opened = Shops::in_each_language();
    let shops = &opened.shops;
    let order = Order { key: "race", target: "/orders", status: None, body: &every_byte() };
    let replies = std::thread::scope(|scope| {
        let order = &order;
        let asked: Vec<_> = (0..8).flat_map(|_| shops).map(|shop| scope.spawn(move || shop.ask(order))).collect();
        asked.into_iter().map(|asked| asked.join().expect("it was answered")).collect::<Vec<_>>()
    });
    assert_eq!(shops.iter().map(|shop| shop.made()).sum::<usize>(), 1);
    assert!(replies.iter().all(|reply| reply.says() == replies[0].says()), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| !reply.is_replayed).count(), 1);
}
