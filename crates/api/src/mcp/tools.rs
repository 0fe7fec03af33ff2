//! Tools and their answers in MCP's words: one text block with the observation, then the picture, and no second copy of either.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use formation_core::{Tool, arguments::Arguments};
use formation_runtime::{Image, Offer, StoredCall};
use rmcp::model::{self, CallToolResult, ContentBlock, JsonObject, ToolAnnotations};
use serde_json::{Value, json};

use crate::run_api::{Annotations, CallProblem};

/// A tool as it is listed.
pub(super) fn listed(offer: &Offer) -> model::Tool {
    annotated(offer.tool, model::Tool::new(offer.tool.as_str(), offer.description(), object(offer.input_schema())))
}

/// A tool from the static table, offered or not: rmcp compares `Mcp-Param-*` headers with its schema.
pub(super) fn known(name: &str) -> Option<model::Tool> {
    let tool = Tool::parse(name)?;
    Some(annotated(tool, model::Tool::new_with_raw(tool.as_str(), None, object(Arguments::schema(tool)))))
}

fn annotated(tool: Tool, listed: model::Tool) -> model::Tool {
    let annotations = Annotations::of(tool);
    listed.with_annotations(ToolAnnotations::from_raw(
        None,
        Some(annotations.read_only),
        Some(annotations.destructive),
        None,
        Some(annotations.open_world),
    ))
}

fn object(schema: Value) -> Arc<JsonObject> {
    Arc::new(if let Value::Object(schema) = schema { schema } else { JsonObject::new() })
}

/// A settled call as a result.
pub(super) fn result(call: &StoredCall, image: Option<&Image>) -> CallToolResult {
    let (text, is_error) = match &call.observation {
        Some(observation) => (observation.text(), observation.is_error()),
        None => (without_observation(call).to_string(), true),
    };
    let mut content = vec![ContentBlock::text(text)];
    content.extend(image.map(|image| ContentBlock::image(STANDARD.encode(&image.jpeg), "image/jpeg")));
    if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

/// Nobody finished the call, or what it answered was scrubbed since: what is known of it.
fn without_observation(call: &StoredCall) -> Value {
    let mut known = json!({"is_error": true, "execution": call.execution, "outcome": call.outcome});
    match call.problem {
        Some(code) => known["problem"] = json!(CallProblem::of(code)),
        None => known["scrubbed"] = json!(true),
    }
    known
}

#[cfg(test)]
mod tests {
    use formation_core::{
        ArtifactId, CallId, Execution, Observation, Outcome,
        refusal::{Code, Refusal, RefusalReason},
    };

    use super::*;

    fn call(observation: Option<Observation>, problem: Option<Code>) -> StoredCall {
        let execution = if problem.is_some() { Execution::Failed } else { Execution::Succeeded };
        StoredCall { id: CallId::fixed(1), execution, outcome: Some(Outcome::Uncertain), observation, problem }
    }

    #[test]
    fn a_result_is_the_observation_s_text_then_the_picture() {
        let observation = Observation::stored(r#"{"is_error":false,"text":"a \"quoted\" line"}"#).expect("an object");
        let image = Image { artifact: ArtifactId::fixed(1), jpeg: vec![0xff, 0xd8] };
        let result = serde_json::to_value(result(&call(Some(observation.clone()), None), Some(&image))).expect("JSON");
        assert_eq!(result["content"][0], json!({"type": "text", "text": observation.text()}));
        assert_eq!(result["content"][1], json!({"type": "image", "data": "/9g=", "mimeType": "image/jpeg"}));
        assert_eq!((&result["isError"], result.get("structuredContent")), (&json!(false), None));
    }

    #[test]
    fn errors_follow_the_observation_or_name_the_problem() {
        let refusal = Observation::refusal(Tool::BrowserRead, &Refusal::new(RefusalReason::RunOver, "The run has ended."));
        assert_eq!(result(&call(Some(refusal), None), None).is_error, Some(true));

        let lost = serde_json::to_value(result(&call(None, Some(Code::HolderGone)), None)).expect("JSON");
        let text: Value = serde_json::from_str(lost["content"][0]["text"].as_str().expect("text")).expect("JSON");
        assert_eq!(
            (&lost["isError"], &text["problem"]["code"], &text["outcome"]),
            (&json!(true), &json!("holder_gone"), &json!("uncertain"))
        );
    }

    #[test]
    fn the_static_table_knows_every_tool_and_no_other() {
        assert!(Tool::ALL.iter().all(|tool| known(tool.as_str()).is_some()));
        assert!(known("browser_delete").is_none());
    }
}
