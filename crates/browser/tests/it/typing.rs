//! Typing and keys (cases D): the field holds what was typed, or the answer says that it doesn't.

use formation_core::{failure::Reason, view::Note};

use crate::support::{
    drive::{Ended, Session},
    site::Site,
};

#[tokio::test]
async fn d1_locked_fields_keep_their_values() {
    let site = Site::page(
        "<label>Account <input readonly value=AC-1></label><label>Branch <input disabled value=North></label>
         <button>Not a field</button>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.type_into("Account", "x").await.not_dispatched(), Reason::ReadOnly);
    assert_eq!(session.type_into("Branch", "x").await.not_dispatched(), Reason::TargetDisabled);
    assert_eq!(session.type_into("Not a field", "x").await.not_dispatched(), Reason::WrongTargetType);
    session.read().await.expect("a view");
    assert_eq!(session.control("Account").value.as_deref(), Some("AC-1"));
    assert_eq!(session.control("Branch").value.as_deref(), Some("North"));
}

#[tokio::test]
async fn d6_d7_d20_d21_the_page_hears_the_value_and_the_model_what_became_of_it() {
    let site = Site::page(
        "<label>Name <input id=n></label><label>Quantity <input id=q value=1></label>
         <label>Code <input maxlength=3></label><label>Phone <input id=p></label><label>City <input value=Oslo></label>
         <script>
         // As component libraries do: the instance's own property hides the native one.
         const native=Object.getOwnPropertyDescriptor(HTMLInputElement.prototype,'value');let tracked=n.value;
         Object.defineProperty(n,'value',{get(){return native.get.call(this)},set(v){tracked=String(v);native.set.call(this,v)}});
         n.addEventListener('input',()=>{const now=native.get.call(n);if(now!==tracked){tracked=now;say('state '+now)}});
         q.addEventListener('input',()=>setTimeout(()=>{q.value='1'},100));
         p.addEventListener('input',()=>{const d=p.value.replace(/\\D/g,'');p.value='('+d.slice(0,3)+') '+d.slice(3)});
         </script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.type_into("Name", "Ada").await.ok().notes, []);
    assert!(site.hears("state Ada").await);
    assert_eq!(session.type_into("Quantity", "25").await.ok().notes, [Note::ValueDiffers]);
    assert_eq!(session.type_into("Code", "abcde").await.ok().notes, [Note::ValueDiffers]);
    assert_eq!(session.type_into("Phone", "5551234567").await.ok().notes, [Note::ValueDiffers]);
    assert_eq!(session.type_into("City", "").await.ok().notes, []);
    for (name, value) in [("Name", "Ada"), ("Quantity", "1"), ("Code", "abc"), ("Phone", "(555) 1234567"), ("City", "")] {
        assert_eq!(session.control(name).value.as_deref().unwrap_or(""), value, "{name}");
    }
}

#[tokio::test]
async fn d9_text_never_lands_in_a_field_that_took_the_focus() {
    let site = Site::page(
        "<label>Shy <input onfocus='this.blur()'></label><label>Greedy <input id=g></label>
         <label>Thief <input onfocus='g.focus()'></label>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    for name in ["Shy", "Thief"] {
        match session.type_into(name, "secret").await {
            Ended::NotDispatched(Reason::FocusMoved) | Ended::Uncertain(Reason::ValueNotAccepted) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
    session.read().await.expect("a view");
    assert_eq!(session.control("Greedy").value.as_deref().unwrap_or(""), "");
}

#[tokio::test]
async fn d11_d12_d16_editors_take_text_as_from_a_keyboard() {
    let site = Site::page(
        "<div id=e contenteditable aria-label='Post text' role=textbox><p>old words</p></div>
         <div id=b contenteditable aria-label=Body role=textbox><p>First paragraph</p><p>Second</p></div>
         <script>
         // An editor with its own model: it takes beforeinput and undoes what it didn't do itself.
         let model='old words',own=false;
         const show=()=>{own=true;e.innerHTML='<p></p>';e.firstChild.textContent=model;Promise.resolve().then(()=>{own=false})};
         e.addEventListener('beforeinput',ev=>{ev.preventDefault();
           if(ev.inputType==='insertText'){const all=getSelection().toString().trim()===model;
             model=all?ev.data:model+ev.data;show();say('model '+model)}});
         new MutationObserver(()=>{if(!own)show()}).observe(e,{childList:true,subtree:true,characterData:true});
         </script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.type_into("Post text", "new words").await.ok();
    assert!(site.hears("model new words").await, "{:?}", site.said());
    session.type_into("Body", "one\ntwo\nthree").await.ok();
    let value = session.control("Body").value.clone().unwrap_or_default();
    let lines: Vec<_> = value.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, ["one", "two", "three"], "{value:?}");
}

#[tokio::test]
async fn d17_a_newline_never_submits() {
    let site = Site::page(
        "<form onsubmit=\"say('sent');return false\"><label>Comment <textarea></textarea></label>
         <label>Subject <input></label><button>Send</button></form>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.type_into("Comment", "line one\nline two").await.ok().notes, []);
    assert_eq!(session.control("Comment").value.as_deref(), Some("line one\nline two"));
    session.type_into("Subject", "sub\nject").await.ok();
    assert_eq!(session.control("Subject").value.as_deref(), Some("sub ject"));
    assert_eq!(site.said(), Vec::<String>::new());
}

#[tokio::test]
async fn d18_d19_fields_with_a_canonical_value_take_it_and_no_other() {
    let site = Site::page(
        "<label>Day <input type=date onchange=\"say('day '+this.value)\"></label><label>Hour <input type=time></label>
         <label>Volume <input type=range min=0 max=10 value=2></label><label>Paint <input type=color></label>
         <label>Size <select onchange=\"say('size '+this.value)\"><option value=s>Small<option value=l>Large</select></label>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.type_into("Day", "2026-11-30").await.ok();
    assert!(site.hears("day 2026-11-30").await);
    session.type_into("Size", "Large").await.ok();
    assert!(site.hears("size l").await);
    session.type_into("Volume", "7").await.ok();
    session.type_into("Paint", "#336699").await.ok();
    assert_eq!(session.control("Paint").value.as_deref(), Some("#336699"));
    for (name, wrong) in [("Hour", "13:60"), ("Volume", "99"), ("Paint", "red"), ("Size", "Huge"), ("Day", "2026-02-30")] {
        assert_eq!(session.type_into(name, wrong).await.not_dispatched(), Reason::InvalidValue, "{name}");
        session.read().await.expect("a view");
    }
    assert_eq!(session.control("Volume").value.as_deref(), Some("7"));
}

#[tokio::test]
async fn an_open_list_of_options_is_in_nobodys_way() {
    let site = Site::page(
        "<label>Size <select onchange=\"say('size '+this.value)\"><option value=s>Small<option value=m>Medium<option value=l>Large</select></label>
         <p style='height:300px'></p><button onclick=\"say('next')\">Next</button>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.click("Size").await.ok();
    session.click("Next").await.ok();
    assert!(site.hears("next").await);
    session.click("Size").await.ok();
    session.type_into("Size", "Large").await.ok();
    assert!(site.hears("size l").await);
    session.click("Next").await.ok();
    assert_eq!(site.said().iter().filter(|said| *said == "next").count(), 2);
    assert_eq!(session.control("Size").value.as_deref(), Some("Large"));
    session.press("Size", "ArrowUp").await.ok();
    assert!(site.hears("size m").await, "{:?}", site.said());
    assert_eq!(site.said(), ["next", "size l", "next", "size m"]);
}

#[tokio::test]
async fn keys_reach_the_control_and_modifiers_are_let_go() {
    let site = Site::page(
        "<input aria-label=Field value=abc><button>Plain</button><script>
         addEventListener('keydown',e=>say([e.key,e.code,e.ctrlKey,e.shiftKey].join(' ')));
         addEventListener('click',e=>say('click '+e.ctrlKey+e.shiftKey))</script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.press("Field", "Control+a").await.ok();
    session.press("Field", "Backspace").await.ok();
    assert_eq!(session.control("Field").value.as_deref().unwrap_or(""), "");
    session.press("Field", "Shift+z").await.ok();
    assert_eq!(session.control("Field").value.as_deref(), Some("Z"));
    session.click("Plain").await.ok();
    assert!(site.hears("click falsefalse").await);
    assert!(site.said().contains(&"a KeyA true false".to_owned()), "{:?}", site.said());
}
