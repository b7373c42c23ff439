#!/bin/busybox sh
# The first process of a machine whose kernel has control groups of version 2 and nothing else. It makes a tree of groups
# as systemd makes it, and then does what is asked of it, each at its place in the tree.

# A root that a kernel unpacks its first files into can be no sandbox's old root.
if [ "$1" != again ]; then
    /bin/busybox mkdir /new
    /bin/busybox mount -t tmpfs -o mode=755,size=90% root /new
    /bin/busybox cp -a /init /bin /etc /lib64 /usr /modules /new/ 
    /bin/busybox mkdir /new/proc /new/sys /new/dev /new/tmp /new/run /new/var /new/root /new/home
    exec /bin/busybox switch_root /new /init again
fi

export PATH=/usr/bin:/bin HOME=/root
/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up
while read -r module; do insmod /modules/$module || echo "no $module"; done < /modules/order
# What is in memory cannot be mounted with other owners before Linux 6.3: homes are on a disk.
mke2fs -F /dev/ram0 > /dev/null
mount -t ext4 /dev/ram0 /home
mkdir -m 1777 /home/tmp
mount --bind /home/tmp /tmp
mount -t cgroup2 -o nsdelegate none /sys/fs/cgroup

TREE=/sys/fs/cgroup
group() { mkdir -p "$TREE/$1"; [ -z "$2" ] || echo "$2" > "$TREE/$1/cgroup.subtree_control"; }
# What whoever a group is delegated to may write.
delegate() { for file in . cgroup.procs cgroup.threads cgroup.subtree_control; do chown $2 "$TREE/$1/$file"; done; }

ALL='+cpu +memory +pids'
group . "$ALL"
group init.scope
echo 1 > $TREE/init.scope/cgroup.procs
group user.slice "$ALL"
# Slices in which nobody has asked for processor time.
group batch.slice '+memory +pids'
group batch.slice/user-0.slice '+memory +pids'
group batch.slice/user-0.slice/session.scope
# A user's own manager, with the scope of a terminal.
group user.slice/user-1000.slice "$ALL"
group user.slice/user-1000.slice/manager "$ALL"
group user.slice/user-1000.slice/manager/app.slice
group user.slice/user-1000.slice/manager/app.slice/terminal.scope
for it in manager manager/app.slice manager/app.slice/terminal.scope; do delegate user.slice/user-1000.slice/$it 1000; done
# The same user by way of a login that delegates nothing.
group user.slice/user-1000.slice/session.scope
group system.slice "$ALL"

ROOT=batch.slice/user-0.slice/session.scope
MANAGED=user.slice/user-1000.slice/manager/app.slice/terminal.scope
LOGIN=user.slice/user-1000.slice/session.scope
SERVICE=system.slice/clerk.service

for who in root agent clerk; do
    mkdir -p /home/$who/work /home/$who/state
    chmod 700 /home/$who/state
done
chown -R 1000:1000 /home/agent
chown -R 1001:1001 /home/clerk

# Groups of sessions, wherever they are.
sessions() { find $TREE -type d -name 'cofferdam-*'; }
# What the kernel counts in the group of the one session that there is.
counted() { for dir in $(sessions); do sed -n "s/^$2 //p" "$dir/$1" 2> /dev/null; done; }
# Waits until a command says yes.
until_so() { tries=0; until "$@"; do tries=$((tries + 1)); [ $tries -lt 600 ] || return 1; usleep 50000; done; }

# A service of a user's with `Delegate=yes`: its own group is all that it has. At every start it is new, and what was in
# it has gone.
service() {
    rmdir $TREE/$SERVICE/*/ $TREE/$SERVICE 2> /dev/null
    group $SERVICE
    delegate $SERVICE 1001
}

# at GROUP USER COMMAND: in a process of its own, which becomes the command.
at() {
    [ $1 != $SERVICE ] || service
    sh -c "echo 0 > $TREE/$1/cgroup.procs; cd /home/$2/work; export COFFERDAM_HOME=/home/$2/state
        exec su -s /bin/sh $2 -c 'exec $3'"
}

# try NAME COMMAND…: tells apart what was said, and how it ended.
try() {
    name=$1
    shift
    echo "@@ begin $name"
    "$@" 2>&1
    echo "@@ end $name $?"
}

# The report of a user's last session.
report() {
    last=$(ls "/home/$1/state/traces" | tail -n 1)
    grep -h '"kind":"enforcement"' "/home/$1/state/traces/$last/events.jsonl"
}

. /etc/cases
echo '@@ done'
reboot -f
