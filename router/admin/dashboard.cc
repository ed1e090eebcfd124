#include "router/admin/dashboard.h"

namespace kvring::router {
namespace {

constexpr std::string_view kPage = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kvring</title>
<link rel="icon" href="data:,">
<style>
:root{--bg:#f6f7f9;--card:#fff;--ink:#1a1d23;--dim:#636b7a;--line:#e2e5eb;--accent:#0b6bcb;--track:#e8ebf0;--good:#12805c;--warn:#9a6700;--bad:#c0362c;--tint:#eaf2fc}
@media (prefers-color-scheme:dark){:root{--bg:#101318;--card:#181c23;--ink:#e6e9ef;--dim:#97a0b0;--line:#2a303a;--accent:#63a9f5;--track:#262c36;--good:#4cc38a;--warn:#e3b341;--bad:#f47067;--tint:#1c2836}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,main{max-width:1180px;margin:0 auto;padding:0 20px}
header{display:flex;align-items:baseline;gap:14px;flex-wrap:wrap;padding-top:22px}
h1{font-size:20px;margin:0;letter-spacing:-.01em}
h2{font-size:13px;font-weight:600;margin:26px 0 10px;color:var(--dim)}
.dim{color:var(--dim)}.num{text-align:right;font-variant-numeric:tabular-nums}
.spring{flex:1}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-top:18px}
.tile,.panel{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 14px}
.tile b{display:block;font-size:23px;font-weight:600;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.panel{overflow-x:auto}
table{border-collapse:collapse;width:100%;min-width:760px}
th,td{padding:8px 12px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;font-size:12px;color:var(--dim)}
th.num{text-align:right}
tbody tr:last-child td{border-bottom:0}
tr.row{cursor:pointer}
tr.row:hover,tr.row[aria-expanded=true]{background:var(--tint)}
:focus-visible{outline:2px solid var(--accent);outline-offset:-2px;border-radius:4px}
.state::before{content:"";display:inline-block;width:8px;height:8px;border-radius:50%;margin-right:7px;background:var(--dim)}
.up::before{background:var(--good)}.down::before,.ejected::before{background:var(--bad)}.draining::before,.starting::before{background:var(--warn)}
.bar{display:inline-block;width:92px;height:8px;border-radius:4px;background:var(--track);overflow:hidden;vertical-align:middle;margin-right:8px}
.bar i{display:block;height:100%;background:var(--accent)}
.tag{display:inline-block;padding:1px 8px;border-radius:9px;background:var(--track);font-size:12px}
.bad{color:var(--bad)}
ul.warnings{margin:14px 0 0;padding:10px 14px 10px 32px;border:1px solid var(--warn);border-radius:10px;background:var(--card)}
button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:7px;padding:3px 10px;cursor:pointer}
button:hover{border-color:var(--accent)}
.why{white-space:normal;background:var(--bg)}
.why table{min-width:0;width:auto;margin-top:6px}
.why th,.why td{padding:3px 14px 3px 0;border:0}
.empty{padding:18px;color:var(--dim)}
footer{max-width:1180px;margin:0 auto;padding:16px 20px 30px}
</style>
</head>
<body>
<header>
<h1>kvring</h1><span id="policy" class="dim"></span><span class="spring"></span>
<span id="live" class="dim" role="status" aria-live="polite">connecting</span>
<button id="pause" aria-pressed="false">Pause</button>
</header>
<main>
<ul id="warnings" class="warnings" hidden aria-label="Warnings"></ul>
<section class="tiles" id="tiles" aria-label="Totals"></section>
<h2>Replicas</h2>
<div class="panel"><table aria-label="Replicas"><thead><tr><th>Replica</th><th>State</th><th class="num">In flight</th><th class="num">Pending prefill</th><th>Cache believed</th><th>Hit rate</th><th class="num">Requests</th><th class="num">Failures</th><th></th></tr></thead><tbody id="replicas"></tbody></table></div>
<h2>Recent decisions</h2>
<div class="panel"><table aria-label="Recent decisions"><thead><tr><th>Request</th><th>Replica</th><th>Reason</th><th class="num">Prompt</th><th class="num">Cached</th><th class="num">Predicted</th><th class="num">TTFT</th><th class="num">Total</th><th>Outcome</th></tr></thead><tbody id="decisions"></tbody></table></div>
</main>
<footer class="dim">Select a decision (click, or Enter) to see why. Tokens are as the replicas reported them.</footer>
<script>
"use strict";
const $=id=>document.getElementById(id);
const el=(tag,cls,text)=>{const e=document.createElement(tag);if(cls)e.className=cls;if(text!==undefined)e.textContent=text;return e};
const count=n=>n===null||n===undefined?"–":n.toLocaleString("en");
const short=n=>n>=1e9?(n/1e9).toFixed(1)+"G":n>=1e6?(n/1e6).toFixed(1)+"M":n>=1e4?(n/1e3).toFixed(1)+"k":count(n);
const pct=x=>(100*x).toFixed(1)+" %";
const ms=x=>x>0?(x>=1000?(x/1000).toFixed(2)+" s":x.toFixed(x<10?1:0)+" ms"):"–";
const get=async path=>{const r=await fetch(path,{cache:"no-store"});if(!r.ok)throw new Error(path+": "+r.status);return r.json()};
let paused=false,open=null,timer=0;
function bar(share,text){const td=el("td"),b=el("span","bar"),i=el("i");i.style.width=Math.min(100,100*share)+"%";b.append(i);td.append(b,document.createTextNode(text));return td}
function tiles(s){
  const rows=[["Requests",short(s.requests)],["Hit rate",pct(s.hit_rate)],["Prompt tokens",short(s.prompt_tokens)],["Cached tokens",short(s.cached_tokens)],["Predicted cached",short(s.predicted_cached_tokens)],["Generated tokens",short(s.completion_tokens)]];
  $("tiles").replaceChildren(...rows.map(([name,value])=>{const t=el("div","tile");t.append(el("span","dim",name),el("b","",value));return t}));
}
async function drain(r){
  await fetch("/admin/v1/drain",{method:"POST",headers:{"Content-Type":"application/json"},body:JSON.stringify({replica:r.id,undrain:r.state==="draining"})});
  refresh();
}
function replicas(list){
  const focused=document.activeElement&&document.activeElement.dataset.drain;
  const rows=list.map(r=>{
    const tr=el("tr"),name=el("td");name.append(el("div","",r.id),el("div","dim",r.url));
    tr.append(name,el("td","state "+r.state,r.state),el("td","num",count(r.in_flight)),el("td","num",count(r.pending_prefill_tokens)));
    tr.append(r.kv_capacity_tokens>0?bar(r.indexed_tokens/r.kv_capacity_tokens,short(r.indexed_tokens)+" of "+short(r.kv_capacity_tokens)):el("td","dim",short(r.indexed_tokens)+", capacity unknown"));
    tr.append(bar(r.hit_rate,pct(r.hit_rate)),el("td","num",count(r.requests)),el("td","num"+(r.failures?" bad":""),count(r.failures)));
    const b=el("button","",r.state==="draining"?"Undrain":"Drain");b.dataset.drain=r.id;b.setAttribute("aria-label",b.textContent+" "+r.id);b.onclick=()=>drain(r);
    const td=el("td");td.append(b);tr.append(td);return tr});
  if(!rows.length){const tr=el("tr"),td=el("td","empty","No replicas yet. POST /admin/v1/backends adds one.");td.colSpan=9;tr.append(td);rows.push(tr)}
  $("replicas").replaceChildren(...rows);
  if(focused)for(const b of document.querySelectorAll("[data-drain]"))if(b.dataset.drain===focused)b.focus();
}
function why(d){
  const tr=el("tr"),td=el("td","why");td.colSpan=9;
  const facts=[["session from",d.session_source],["attempts",d.attempts],["prompt, estimated",count(d.estimated_prompt_tokens)],["prediction",d.prediction_exact?"exact":"estimate"],["number",d.number]];
  td.append(el("span","dim",facts.map(([k,v])=>k+": "+v).join("   ·   ")));
  if(d.candidates.length){
    const t=el("table"),head=el("tr");for(const h of ["Candidate","Matched","Cost","own","ext","mem","dec"])head.append(el("th",h==="Candidate"?"":"num",h));t.append(head);
    for(const c of d.candidates){const r=el("tr");r.append(el("td","",c.replica),el("td","num",count(c.matched_tokens)));for(const k of ["cost_s","own_s","ext_s","mem_s","dec_s"])r.append(el("td","num",ms(1000*c[k])));t.append(r)}
    td.append(t);
  }
  tr.append(td);return tr;
}
function decisions(list){
  const focused=document.activeElement&&document.activeElement.dataset.request,rows=[];
  for(const d of list){
    const tr=el("tr","row");tr.tabIndex=0;tr.dataset.request=d.number;tr.setAttribute("aria-expanded",String(open===d.number));
    const reason=el("td");reason.append(el("span","tag",d.reason||d.refusal||"–"));
    tr.append(el("td","",d.request_id),el("td","",d.replica||"–"),reason,el("td","num",count(d.prompt_tokens)),el("td","num",count(d.cached_tokens)),el("td","num",count(d.predicted_cached_tokens)),el("td","num",ms(d.ttft_ms)),el("td","num",ms(d.total_ms)),el("td",d.outcome==="ok"||d.outcome==="running"?"":"bad",d.outcome));
    const toggle=()=>{open=open===d.number?null:d.number;decisions(list)};
    tr.onclick=toggle;tr.onkeydown=e=>{if(e.key==="Enter"||e.key===" "){e.preventDefault();toggle()}};
    rows.push(tr);if(open===d.number)rows.push(why(d));
  }
  if(!rows.length){const tr=el("tr"),td=el("td","empty","No requests yet.");td.colSpan=9;tr.append(td);rows.push(tr)}
  $("decisions").replaceChildren(...rows);
  if(focused)for(const r of document.querySelectorAll("tr.row"))if(r.dataset.request===focused)r.focus();
}
async function refresh(){
  clearTimeout(timer);
  try{
    const [s,r,d,h,p]=await Promise.all([get("/admin/v1/stats"),get("/admin/v1/replicas"),get("/admin/v1/decisions?limit=25"),get("/admin/v1/health"),get("/admin/v1/policy")]);
    tiles(s);replicas(r.replicas);decisions(d.decisions);
    $("policy").textContent=p.policy+", "+h.replicas_up+" of "+h.replicas+" replicas up";
    $("warnings").replaceChildren(...h.warnings.map(w=>el("li","",w)));$("warnings").hidden=!h.warnings.length;
    const state=paused?"paused":"live";if($("live").textContent!==state)$("live").textContent=state;$("live").className="dim";
  }catch(e){$("live").textContent="router not reachable";$("live").className="bad"}
  if(!paused)timer=setTimeout(refresh,1500);
}
$("pause").onclick=()=>{paused=!paused;$("pause").textContent=paused?"Resume":"Pause";$("pause").setAttribute("aria-pressed",String(paused));refresh()};
refresh();
</script>
</body>
</html>
)page";

}  // namespace

std::string_view DashboardPage() { return kPage; }

}  // namespace kvring::router
