//! Calls that got no reply, in the words of every provider.

use formation_core::failure::{CallFailure, CallReason, CallStage};
use formation_wire::ClientError;

/// Why there is no reply.
pub(crate) const fn failure(error: ClientError) -> CallFailure {
    let (stage, reason) = match error {
        ClientError::Origin | ClientError::Tls | ClientError::NotConnected => (CallStage::Connect, CallReason::ProviderUnavailable),
        ClientError::Credential => (CallStage::Request, CallReason::CredentialRejected),
        ClientError::Broken => (CallStage::Reply, CallReason::ProviderUnavailable),
        ClientError::Late => (CallStage::Reply, CallReason::Timeout),
        ClientError::TooLarge | ClientError::Shape => (CallStage::Reply, CallReason::InvalidReply),
    };
    CallFailure::new(stage, reason)
}
