# Login shells find the programs of /opt/own, too; backendai.sh has set the rest.
PATH=/home/work/.local/bin:/opt/own/bin:${PATH#*:}
export PATH
