package reexpand.local;

import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.proxy.ProxyStartup;

/** Name server, broker and proxy in one process, which takes half the memory of three. */
public final class RocketMQ {
  private RocketMQ() {}

  /** Starts them with their configuration files, in this order; the proxy ends where no broker is registered. */
  public static void main(String[] args) throws InterruptedException {
    NamesrvController names = NamesrvStartup.main0(new String[] {"-c", args[0]});
    BrokerStartup.main(new String[] {"-c", args[1]});
    while (names.getRouteInfoManager().getAllClusterInfo().getClusterAddrTable().isEmpty()) {
      Thread.sleep(10);
    }
    ProxyStartup.main(new String[] {"-pm", "cluster", "-pc", args[2]});
    System.out.println("ready");
  }
}
