//! Connections: each is served until it ends, and a client has to send its head in time.

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;

/// Serves `routes` until `end` completes, and then until open answers have ended.
///
/// A connection is closed if the head of a request, whether the first or a later one, takes longer
/// than `head_time` to arrive.
pub(crate) async fn serve(
    mut listener: TcpListener,
    routes: Router,
    head_time: Duration,
    end: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_time);
    let open = GracefulShutdown::new();
    let mut end = pin!(end);
    loop {
        let (stream, _) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = &mut end => break,
        };
        let service = TowerToHyperService::new(routes.clone());
        let connection = open.watch(http.serve_connection(TokioIo::new(stream), service));
        // A client that breaks off or is too slow concerns nobody else.
        tokio::spawn(async { drop(connection.await) });
    }
    drop(listener);
    open.shutdown().await;
}
