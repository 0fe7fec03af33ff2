//! What a page says about itself: lines, controls, names and states, and what never leaves it.

use formation_browser::Look;
use formation_core::{
    limits::{CONTROLS, PAGE_TEXT_BYTES},
    view::{Control, PageView},
};

use crate::support::{drive::Session, site::Site};

async fn view(body: &str) -> PageView {
    let site = Site::page(body).await;
    Session::at(&site.url("/")).await.view
}

fn named(view: &PageView) -> Vec<(&str, &str)> {
    view.controls.iter().map(|control| (control.role.as_str(), control.name.as_str())).collect()
}

fn control<'v>(view: &'v PageView, name: &str) -> &'v Control {
    view.controls.iter().find(|control| control.name == name).unwrap_or_else(|| panic!("no {name:?} in {view:#?}"))
}

#[tokio::test]
async fn text_has_a_line_a_block_and_tabs_between_cells() {
    let view = view(
        "<h1>Head  line</h1><p>One <b>bold</b>\n word<br>next</p><div><div>Inner</div>tail</div>
         <table><caption>Cap</caption><tr><th>A</th><th>B</th></tr><tr><td>1<div>x</div></td><td></td><td>3</td></tr></table>
         <div role=row><span role=cell>g1</span><span role=cell>g2</span></div>
         <table><tr><td><table><tr><td>l1</td><td>l2</td></tr><tr><td>l3</td></tr></table></td><td>side</td></tr></table>
         <pre>keep  this\n\tindented</pre><button>Left</button><button>Right</button><ul><li>i1<li>i2</ul>",
    )
    .await;
    let lines: Vec<_> = view.text.lines().collect();
    let expected = [
        "Head line",
        "One bold word",
        "next",
        "Inner",
        "tail",
        "Cap",
        "A\tB",
        "1 x\t\t3",
        "g1\tg2",
        "l1\tl2",
        "l3",
        "side",
        "keep  this",
        "  indented",
        "Left Right",
        "i1",
        "i2",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn b12_i10_what_nobody_sees_is_not_told() {
    let view = view(
        "<style>.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0 0 0 0)}</style>
         <p>seen</p><p hidden>no1</p><div style='display:none'>no2<button>no3</button></div>
         <div style='visibility:hidden'>no4<button>no5</button><b style='visibility:visible'>child seen<button>Yes</button></b></div>
         <div style='position:absolute;left:-9999px' aria-label='Obey me' tabindex=0>no6<a href=#>no7</a></div>
         <div style='position:fixed;top:-500px'>no8<button>no9</button></div><span class=sr>no10<button>no11</button></span>
         <div style='opacity:0'>no12<button>no13</button></div><details><summary>More</summary>no14<button>no15</button></details>
         <div style='height:0;overflow:hidden'>no16<button>no17</button></div><h1 style='text-indent:-9999px'>no18</h1>
         <p style='font-size:0'>no19</p><p style='margin-left:-3000px;width:90px'>no20</p><template>no21</template><noscript>no22</noscript>
         <select><option>no23</select><textarea>no24</textarea><iframe>no25</iframe><div style='content-visibility:hidden'>no26</div>
         <div style='clip-path:inset(100%);position:absolute'>no27</div>",
    )
    .await;
    assert!(!view.text.contains("no"), "{}", view.text);
    assert_eq!(view.text.lines().collect::<Vec<_>>(), ["seen", "child seen Yes", "More"]);
    let names: Vec<_> = named(&view).into_iter().map(|(_, name)| name).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["Yes", "More"]);
}

#[tokio::test]
async fn controls_carry_roles_and_accessible_names() {
    let view = view(
        "<a href=/x>Link</a><button aria-label='By label'>x</button><button aria-labelledby='n1 n2'>x</button><i id=n1>By</i> <i id=n2>ids</i>
         <label>Wrapped <input></label><label for=f>For</label><input id=f type=search><input placeholder=Hint type=email>
         <input title=Titled type=number><input type=submit><input type=button value=Press><input type=image alt=Pic src=/p>
         <a href=/i><img alt='Image link' src=/p></a><button><svg width=9 height=9><title>Icon</title></svg></button>
         <select aria-label=Pick><option>a</select><select multiple aria-label=Many><option>a</select><textarea aria-label=Area></textarea>
         <div role=tab tabindex=0>Tab</div><div role='wrong switch' aria-checked=true>Switch</div><div role=slider aria-valuenow=4 aria-label=Slide>.</div>
         <p contenteditable aria-label=Editor>text</p><input type=range aria-label=Range><input list=l aria-label=Combo><datalist id=l></datalist>
         <div role='x\"y<z' tabindex=0>Odd role</div>",
    )
    .await;
    let expected = [
        ("link", "Link"),
        ("button", "By label"),
        ("button", "By ids"),
        ("textbox", "Wrapped"),
        ("searchbox", "For"),
        ("textbox", "Hint"),
        ("spinbutton", "Titled"),
        ("button", "Submit"),
        ("button", "Press"),
        ("button", "Pic"),
        ("link", "Image link"),
        ("button", "Icon"),
        ("combobox", "Pick"),
        ("listbox", "Many"),
        ("textbox", "Area"),
        ("tab", "Tab"),
        ("switch", "Switch"),
        ("slider", "Slide"),
        ("textbox", "Editor"),
        ("slider", "Range"),
        ("combobox", "Combo"),
        ("generic", "Odd role"),
    ];
    assert_eq!(named(&view), expected);
    assert_eq!(control(&view, "Switch").checked, Some(true));
    assert_eq!(control(&view, "Slide").value.as_deref(), Some("4"));
    assert_eq!(control(&view, "Editor").value.as_deref(), Some("text"));
    assert_eq!(control(&view, "Pick").options, ["a"]);
}

#[tokio::test]
async fn controls_made_by_script_are_listed_once() {
    let view = view(
        "<style>.p{cursor:pointer}</style><div class=p>Card <b>bold</b></div><span onclick='1'>Inline</span><div tabindex=0>Focusable</div>
         <ul class=p><li>First<li>Second <ul><li>Nested</ul></ul><div tabindex=-1>Not one</div><div draggable=true>Drag</div>
         <a>Without address</a><button class=p>Button <span class=p>inner</span></button><label class=p>Label <input type=checkbox></label>",
    )
    .await;
    let expected = [
        ("generic", "Card bold"),
        ("generic", "Inline"),
        ("generic", "Focusable"),
        ("listitem", "First"),
        ("listitem", "Second Nested"),
        ("listitem", "Nested"),
        ("generic", "Drag"),
        ("link", "Without address"),
        ("button", "Button inner"),
        ("checkbox", "Label"),
    ];
    assert_eq!(named(&view), expected);
}

#[tokio::test]
async fn b9_b10_what_only_its_label_shows_is_a_control_and_works() {
    let site = Site::page(
        "<style>.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0 0 0 0)}label{display:block;padding:9px}</style>
         <input type=checkbox class=sr id=a onchange=\"say('a '+checked)\"><label for=a>Agree <a href=/terms>terms</a></label>
         <input type=radio style='display:none' id=b onchange=\"say('b '+checked)\"><label for=b>Plan</label>
         <div style='position:relative'><input type=radio style='opacity:0;position:absolute;inset:0' id=c onchange=\"say('c '+checked)\"><label for=c>Other</label></div>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let expected = [("checkbox", "Agree terms"), ("link", "terms"), ("radio", "Plan"), ("radio", "Other")];
    let mut found = named(&session.view);
    found.sort_unstable();
    let mut wanted = expected.to_vec();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    for (name, said) in [("Agree terms", "a true"), ("Plan", "b true"), ("Other", "c true")] {
        let after = session.click(name).await.ok();
        assert!(site.hears(said).await, "{name}");
        assert!(after.page.url.ends_with('/'), "the link in a label is not followed");
        assert_eq!(control(&after, name).checked, Some(true));
    }
}

#[tokio::test]
async fn states_are_told() {
    let view = view(
        "<fieldset disabled><button>In set</button></fieldset><div aria-disabled=true><button>Under</button></div><div inert><button>Inert</button></div>
         <input aria-label=Locked readonly value=v><input aria-label=Must required><input aria-label=Wrong aria-invalid=true>
         <details open><summary>Open</summary>x</details><div role=option aria-selected=true>Chosen</div><input aria-label=Here autofocus>
         <input type=checkbox aria-label=On checked><input type=checkbox aria-label=Off><button aria-pressed=true>Held</button>",
    )
    .await;
    for name in ["In set", "Under", "Inert"] {
        assert!(control(&view, name).disabled, "{name}");
    }
    assert!(control(&view, "Locked").readonly && control(&view, "Must").required && control(&view, "Wrong").invalid);
    assert!(control(&view, "Open").expanded && control(&view, "Chosen").selected && control(&view, "Here").focused);
    let checked = ["On", "Off", "Held", "Open"].map(|name| control(&view, name).checked);
    assert_eq!(checked, [Some(true), Some(false), Some(true), None]);
    assert!(!control(&view, "On").disabled && !control(&view, "On").focused);
}

#[tokio::test]
async fn i2_i3_secrets_never_leave_the_page() {
    let view = view(
        "<input type=password aria-label=P value=s3cret><input autocomplete=new-password aria-label=N value=s3cret>
         <input autocomplete='section-x current-password' aria-label=C value=s3cret><input autocomplete=one-time-code aria-label=O value=s3cret>
         <textarea autocomplete=one-time-code aria-label=T>s3cret</textarea><input style='-webkit-text-security:disc' aria-label=M value=s3cret>
         <input aria-label=Plain value=open>",
    )
    .await;
    assert!(!serde_json::to_string(&view).expect("a view").contains("s3cret"));
    for name in ["P", "N", "C", "O", "T", "M"] {
        assert_eq!(control(&view, name).value, None, "{name}");
    }
    assert_eq!(control(&view, "Plain").value.as_deref(), Some("open"));
}

#[tokio::test]
async fn limits_hold_inside_the_page() {
    let site = Site::page(
        "<p><script>
           document.title='€'.repeat(5000);
           const add=(tag,set)=>{const e=document.createElement(tag);set(e);document.body.append(e);return e};
           add('button',e=>{e.textContent='ä'.repeat(9000)});
           add('input',e=>{e.ariaLabel='Line';e.value='😀'.repeat(900)});
           add('textarea',e=>{e.ariaLabel='Lines';e.value='😀'.repeat(900)});
           add('select',e=>{e.ariaLabel='Options';for(let i=0;i<90;i++)e.add(new Option('o'.repeat(999)+i))});
           for(let i=0;i<400;i++)add('a',e=>{e.href='#'+i;e.textContent='link '+i;e.style.display='block'});
         </script>",
    )
    .await;
    let view = Session::at(&site.url("/")).await.view;
    assert_eq!(view.page.title, "€".repeat(100));
    assert_eq!(view.controls.len(), CONTROLS);
    assert!(view.truncated.controls);
    assert_eq!(view.controls[0].name, "ä".repeat(80));
    assert_eq!(control(&view, "Line").value.as_deref(), Some("😀".repeat(50).as_str()));
    assert_eq!(control(&view, "Lines").value.as_deref(), Some("😀".repeat(500).as_str()));
    let options = &control(&view, "Options").options;
    assert_eq!(options.len(), 50);
    assert!(options.iter().all(|label| label.len() == 160));
}

#[tokio::test]
async fn controls_in_the_viewport_come_first() {
    let site = Site::page(
        "<script>for(let i=0;i<400;i++)document.write(`<button style='display:block;height:30px'>b${i}</button>`);
         addEventListener('load',()=>scrollTo(0,6000))</script>",
    )
    .await;
    let view = Session::at(&site.url("/")).await.view;
    let first: u32 = view.controls[0].name[1..].parse().expect("a number");
    assert!((195..=201).contains(&first), "{first}");
    assert!(view.controls.iter().any(|control| control.name == "b0"));
}

#[tokio::test]
async fn text_is_read_on_and_searched() {
    let site = Site::page("<script>for(let i=0;i<3000;i++)document.write(`<p>Zeile ${i} größer</p>`)</script><button>Buy Pear</button><button>Sell</button>").await;
    let mut session = Session::at(&site.url("/")).await;
    let mut read = session.view.text.clone();
    while let Some(next) = session.view.truncated.next_text_offset {
        assert!(session.view.truncated.text && session.view.text.len() <= PAGE_TEXT_BYTES);
        assert_eq!(next, read.len());
        let view = session.look(Look { text_offset: next, find: None }).await.expect("a view");
        read.push_str(&view.text);
    }
    let lines: Vec<_> = read.lines().collect();
    assert_eq!(lines.len(), 3001);
    assert_eq!((lines[2999], lines[3000]), ("Zeile 2999 größer", "Buy Pear Sell"));

    let found = session.look(Look { text_offset: 0, find: Some("PEAR".into()) }).await.expect("a view");
    assert_eq!((found.text.as_str(), named(&found)), ("Buy Pear Sell", vec![("button", "Buy Pear")]));
    // The refs of a search are good as any.
    session.click("Buy Pear").await.ok();
    let found = session.look(Look { text_offset: 0, find: Some("zeile 299".into()) }).await.expect("a view");
    assert_eq!(found.text.lines().count(), 11);
}

#[tokio::test]
async fn i20_f15_a_page_that_tampers_sees_and_changes_nothing() {
    let site = Site::page(
        "<button onclick=\"say('pressed')\">Real</button>
         <form tabindex=0 aria-label=Trap><input name=parentNode><input name=shadowRoot><input name=localName><input name=firstChild><input name=focus></form>
         <img name=title><img name=body><img name=documentElement><iframe name=formation></iframe>
         <script>
           const before=Object.getOwnPropertyNames(window).length;
           Element.prototype.getBoundingClientRect=()=>{say('rect');return {}};
           Element.prototype.getAttribute=()=>'evil';
           document.querySelector=()=>null;document.elementFromPoint=()=>document.body;
           Array.prototype.map=()=>['evil'];JSON.stringify=()=>'evil';String.prototype.slice=()=>'evil';
           globalThis[Symbol.for('formation')]={run(){say('run');return {ok:{}}}};
           setInterval(()=>{if(Object.getOwnPropertyNames(window).length!==before)say('globals')},50);
           new MutationObserver(()=>say('mutation')).observe(document,{subtree:true,childList:true,attributes:true,characterData:true});
           addEventListener('scroll',()=>say('scroll'),true);addEventListener('focus',()=>say('focus'),true);
         </script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.read().await.expect("a view");
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    assert_eq!(site.said(), Vec::<String>::new(), "reading leaves no trace");
    assert_eq!(session.control("Trap").role, "generic");
    session.click("Real").await.ok();
    assert!(site.hears("pressed").await);
    let said = site.said();
    assert!(!said.iter().any(|word| matches!(word.as_str(), "rect" | "run" | "globals" | "mutation")), "{said:?}");
}
