use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};

use super::*;

fn message(length: usize) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&(length as u32).to_be_bytes());
    bytes.resize(PREFIX_LEN + length, 7);
    bytes
}

async fn look_at(chunks: Vec<Vec<u8>>) -> OutgoingRequest {
    let frames = chunks.into_iter().map(|chunk| Ok::<_, Status>(Frame::data(Bytes::from(chunk))));
    look(http::Request::new(Body::new(StreamBody::new(stream::iter(frames))))).await
}

async fn bytes_of(request: http::Request<Body>) -> Vec<u8> {
    request.into_body().collect().await.expect("a body").to_bytes().to_vec()
}

#[tokio::test]
async fn one_message_is_whole_and_can_be_sent_twice() {
    let message = message(9);
    for cut in 0..=message.len() {
        let (front, back) = message.split_at(cut);
        let OutgoingRequest::Whole(whole) = look_at(vec![front.to_vec(), back.to_vec()]).await else {
            panic!("cut at {cut} it is a stream")
        };
        assert_eq!(bytes_of(whole.request()).await, message);
        assert_eq!(bytes_of(whole.into_request()).await, message);
    }
}

#[tokio::test]
async fn two_messages_are_a_stream_even_in_one_chunk() {
    let two = [message(3), message(0)];
    for chunks in [two.to_vec(), vec![two.concat()]] {
        let OutgoingRequest::Stream(request) = look_at(chunks).await else { panic!("it is whole") };
        assert_eq!(bytes_of(request).await, two.concat());
    }
}

#[tokio::test]
async fn a_silent_body_is_a_stream_and_not_waited_for() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    let frames = stream::unfold(receiver, |mut receiver| async move {
        let chunk = receiver.recv().await?;
        Some((Ok::<_, Status>(Frame::data(Bytes::from(chunk))), receiver))
    });
    sender.send(message(2)).expect("open");
    let looked = look(http::Request::new(Body::new(StreamBody::new(Box::pin(frames))))).await;
    let OutgoingRequest::Stream(request) = looked else { panic!("its end had not come") };
    drop(sender);
    assert_eq!(bytes_of(request).await, message(2));
}

#[tokio::test]
async fn a_failed_body_is_not_sent_as_whole() {
    let frames = [Ok(Frame::data(Bytes::from(message(1)))), Err(Status::data_loss("gone"))];
    let body = Body::new(StreamBody::new(stream::iter(frames)));
    let OutgoingRequest::Stream(request) = look(http::Request::new(body)).await else { panic!("it is whole") };
    let error = request.into_body().collect().await.expect_err("it failed");
    assert_eq!(error.code(), tonic::Code::DataLoss);
}
