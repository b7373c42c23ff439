# The cases: sourced by the first process, in which `at`, `try` and the places are.

C=/usr/bin/cofferdam
HOG='dd if=/dev/zero of=/dev/null bs=200M count=1'
BOMB='sh -c "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 2 & done; wait"'

for place in root managed service; do
    case $place in
    root) where=$ROOT who=root ;;
    managed) where=$MANAGED who=agent ;;
    service) where=$SERVICE who=clerk ;;
    esac
    try $place.doctor at $where $who "$C doctor --json"
    try $place.true at $where $who "$C run -- true"
    try $place.report report $who
    try $place.memory at $where $who "$C run --memory 48m -- $HOG"
    try $place.pids at $where $who "$C run --pids 12 -- $BOMB"
    at $where $who "$C run --cpu 0.2 --timeout 60s -- yes" > /dev/null 2>&1 &
    throttled() { [ "$(counted cpu.stat nr_throttled)" -gt 0 ] 2> /dev/null; }
    try $place.cpu until_so throttled
    reported() { report $who | grep -q ' cores '; }
    until_so reported
    try $place.cpu.report report $who
    try $place.sessions sessions
    # What is killed takes everything with it, and the next start finds nothing but its group.
    running=$(pidof cofferdam)
    kill -9 $running
    gone() { ! pidof yes > /dev/null; }
    try $place.killed until_so gone
    try $place.refused at $where $who "$C run --no-such-flag -- true"
    try $place.again at $where $who "$C run -- true"
    try $place.left sessions
done

# One that was killed before there was anything else of its session than the group.
mkdir $TREE/batch.slice/user-0.slice/cofferdam-$(ls /home/root/state/traces | tail -n 1 | sed 's/.$/z/')
try early.there sessions
try early.run at $ROOT root "$C run -- true"
try early.left sessions

for place in root managed service; do
    case $place in
    root) where=$ROOT who=root ;;
    managed) where=$MANAGED who=agent ;;
    service) where=$SERVICE who=clerk ;;
    esac
    try $place.create at $where $who "$C session create --name one"
    # Who asks a service is not in its group.
    [ $place != service ] || where=$LOGIN
    at $where $who "$C session exec one -- yes" > /dev/null 2>&1 &
    busy() { [ "$(counted cpu.stat usage_usec)" -gt 400000 ] 2> /dev/null; }
    try $place.busy until_so busy
    try $place.pause at $where $who "$C session pause one"
    try $place.frozen counted cgroup.events frozen
    before=$(counted cpu.stat usage_usec)
    usleep 300000
    try $place.still [ "$before" = "$(counted cpu.stat usage_usec)" ]
    try $place.resume at $where $who "$C session resume one"
    try $place.thawed counted cgroup.events frozen
    more() { [ "$(counted cpu.stat usage_usec)" -gt "$before" ] 2> /dev/null; }
    try $place.more until_so more
    try $place.kill at $where $who "$C session kill one"
    none() { [ -z "$(sessions)" ]; }
    try $place.end until_so none
done

try login.doctor at $LOGIN agent "$C doctor --json"
try login.true at $LOGIN agent "$C run -- true"
try login.report report agent
try login.memory at $LOGIN agent "$C run --memory 48m -- true"
try login.accepted at $LOGIN agent "$C run --memory 48m --accept rlimits -- $HOG"
try login.accepted.report report agent
try login.pids at $LOGIN agent "$C run --pids 12 -- true"
try login.left sessions
