const form = document.querySelector('form');
const said = document.getElementById('said');
const button = form.querySelector('button');
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const value = (id) => document.getElementById(id).value;
  if (value('password') !== value('again')) {
    said.textContent = 'The two passwords differ.';
    document.getElementById('again').focus();
    return;
  }
  button.disabled = true;
  said.textContent = 'One moment…';
  try {
    const token = location.pathname.split('/').pop();
    const body = JSON.stringify({ token, name: value('name').trim(), password: value('password') });
    const reply = await fetch('/api/setup', { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    const answer = await reply.json();
    if (reply.ok) {
      history.replaceState(null, '', '/');
      form.replaceWith(said);
      said.textContent = 'Done, ' + answer.operator.name + '. This server is yours, and this browser is signed in.';
      return;
    }
    const field = answer.fields ? answer.fields.field + ': ' : '';
    said.textContent = field + (answer.detail || answer.title);
  } catch {
    said.textContent = 'The server does not answer. Nothing was changed.';
  }
  button.disabled = false;
});
