//! One certificate for two names: HTTP/2 lets a browser send requests for both over one connection.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use formation_core::failure::Reason;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, KeyPair, PublicKeyData};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::browser::{Page, Rules, Vendor, script, temporary};

type Hosts = Arc<Mutex<Vec<String>>>;

/// An HTTP/2 server for both names; the hash of its key in Chromium's spelling, and the hosts it was asked for.
async fn serve() -> (SocketAddr, String, Hosts) {
    let names = ["listed.example".to_owned(), "other.example".to_owned()];
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(KeyPair::serialize_der(&signing_key)));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key))
        .expect("a TLS configuration");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let hosts = Hosts::default();
    let noted = hosts.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, noted) = (acceptor.clone(), noted.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request: Request<Incoming>| {
                    let host = request.uri().host().unwrap_or("").to_owned();
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(host);
                    let page =
                        Response::builder().header("content-type", "text/html").body(Full::<Bytes>::from("<title>both</title>"));
                    async move { Ok::<_, Infallible>(page.expect("a response")) }
                });
                // How a browser ends its connection is its business.
                drop(
                    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
            });
        }
    });
    (address, STANDARD.encode(Sha256::digest(signing_key.subject_public_key_info())), hosts)
}

/// B3: the connection of a listed host carries nothing for a host that isn't, whatever its certificate says.
#[tokio::test]
async fn a_certificate_for_two_names_opens_no_way_to_the_refused_one() {
    let (address, key, hosts) = serve().await;
    let home = temporary();
    let plain = Vendor::start_in(home.path(), Rules::default()).await;
    let program = plain.local.report().program.display();
    let trusting = script(home.path(), &format!("exec {program} --ignore-certificate-errors-spki-list={key} \"$@\""));
    let asked = |host: &str| hosts.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|seen| seen == host);
    let fetch = "fetch('https://other.example/', {mode: 'no-cors'}).then(() => 'sent', () => 'refused')";
    let protocol = "performance.getEntriesByType('navigation')[0].nextHopProtocol";

    let rules =
        Rules { program: Some(trusting), ..Rules::default() }.name("listed.example", address).name("other.example", address);
    let listed = Vendor::start(rules.only("listed.example")).await;
    let mut page = Page::of(listed.open(1).await).await;
    assert_eq!(page.navigate("https://listed.example/").await, "");
    assert_eq!(page.evaluate(protocol).await, json!("h2"));
    assert_eq!(page.evaluate(fetch).await, json!("refused"));
    assert_eq!(page.refusals.take("other.example", 443), Some(Reason::HostnameNotAllowed));
    assert!(asked("listed.example") && !asked("other.example"));
    listed.close(&page.remote).await;

    // The same without a list: it was the list, not the certificate.
    let open = listed.without_list();
    let mut page = Page::of(open.open(2).await).await;
    assert_eq!(page.navigate("https://listed.example/").await, "");
    assert_eq!(page.evaluate(fetch).await, json!("sent"));
    assert!(asked("other.example"));
    open.close(&page.remote).await;
}
